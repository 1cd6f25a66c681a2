// Only what has no default.
using '../main.bicep'

param environmentName = 'trial'
param location = 'eastus2'
param emails = 'somebody@example.com'
