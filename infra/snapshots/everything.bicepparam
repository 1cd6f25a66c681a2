// Three regions, and every switch that adds resources or settings.
using '../main.bicep'

param environmentName = 'trial'
param location = 'eastus2'
param emails = 'somebody@example.com, another@example.com'
param regions = [
  { name: 'east', location: 'eastus2' }
  { name: 'west', location: 'westus3' }
  { name: 'north', location: 'northcentralus' }
]
param authentication = 'entra'
param clientId = '33333333-3333-3333-3333-333333333333'
param durableBackend = 'scheduler'
param zoneRedundant = true
param frontDoor = true
param directCallers = '203.0.113.0/24, 198.51.100.7/32'
param privateNetwork = true
param serviceBusSku = 'Premium'
param readers = '11111111-1111-1111-1111-111111111111'
param producers = ['22222222-2222-2222-2222-222222222222']
param inputTopics = ['orders']
param replyQueues = 'answers'
param scaleByBacklog = true
param keepRecord = true
param otlpEndpoint = 'https://collector.example.com'
param monthlyBudget = 500
param budgetFrom = '2026-12-01'
