metadata description = 'What producers outside the apps may do in one region: send to the input queue, and nothing else.'

@description('Required. Object ids of their identities in Entra ID.')
param producers string[]

@description('Required. Service Bus namespace of the region.')
param namespaceName string

@description('Required. Name of the input queue.')
param queueName string

// Azure Service Bus Data Sender: send to the queue. It neither receives nor manages.
var sender = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'

resource namespace 'Microsoft.ServiceBus/namespaces@2026-01-01' existing = {
  name: namespaceName
}

resource queue 'Microsoft.ServiceBus/namespaces/queues@2026-01-01' existing = {
  parent: namespace
  name: queueName
}

resource send 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for principalId in producers: {
    scope: queue
    name: guid(queue.id, principalId, sender)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', sender)
    }
  }
]
