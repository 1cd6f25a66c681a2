metadata description = 'One budget of all resource groups of an environment: mail when most of it is spent, and when it is going to be exceeded.'
targetScope = 'subscription'

@description('Required. Name of the environment.')
param environmentName string

@description('Required. Names of its resource groups: of what everything in them costs, the sum counts.')
@minLength(1)
param groups string[]

@description('Required. The amount a month, in the currency of the subscription.')
@minValue(1)
param amount int

@description('Required. First day of the month from which it counts, as in 2026-12-01; it cannot be changed later.')
param from string

@description('Required. Addresses that are told.')
@minLength(1)
param emails string[]

resource budget 'Microsoft.Consumption/budgets@2026-06-01' = {
  name: 'lockstep-${environmentName}'
  properties: {
    category: 'Cost'
    amount: amount
    timeGrain: 'Monthly'
    timePeriod: { startDate: from }
    // By group and not by tag: what a resource costs has its tags only where its service reports them.
    filter: {
      dimensions: {
        name: 'ResourceGroupName'
        operator: 'In'
        values: groups
      }
    }
    notifications: {
      spent: {
        enabled: true
        operator: 'GreaterThan'
        threshold: 80
        thresholdType: 'Actual'
        contactEmails: emails
      }
      forecast: {
        enabled: true
        operator: 'GreaterThan'
        threshold: 100
        thresholdType: 'Forecasted'
        contactEmails: emails
      }
    }
  }
}
