// A journal that was restored, another primary, and what can be switched off is off.
using '../main.bicep'

param environmentName = 'trial'
param location = 'westeurope'
param emails = 'none'
param primary = 'west'
param journalLocations = ['westus3', 'eastus2', 'centralus']
param journalAccount = 'restored'
param journalAccountLocation = 'eastus2'
param ledgersName = 'ledgers'
param authentication = 'both'
param clientId = '33333333-3333-3333-3333-333333333333'
param storageSku = 'Standard_LRS'
param durableBackend = 'none'
param partitionFailover = false
param lockJournal = false
param replacedRegions = 'west'
param telemetryGigabytesMax = -1
