metadata description = 'What the people of one group may look at in a resource group. None of it lets them change anything but the error queues.'

@description('Required. Object id of the group in Entra ID.')
param group string

@description('Optional. Service Bus namespaces of all regions, where they are in this resource group.')
param namespaces string[] = []

@description('Optional. Name of the error queue, which is the same in all of them.')
param errorQueue string = ''

var roleIds = {
  // Monitoring Reader: metrics, logs, alerts and the workbooks of the resource group.
  monitoringReader: '43d0d8ad-25c7-4714-9337-8ba259a9fe05'
  // Azure Service Bus Data Receiver: peek at the error queue. Service Bus has no role for peeking alone: who may peek
  // may take, too. So it is given for this queue only, whose content the journal has as well.
  serviceBusReceiver: '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'
}

resource found 'Microsoft.ServiceBus/namespaces@2026-01-01' existing = [
  for name in namespaces: {
    name: name
  }
]

resource queues 'Microsoft.ServiceBus/namespaces/queues@2026-01-01' existing = [
  for (name, index) in namespaces: {
    parent: found[index]
    name: errorQueue
  }
]

resource peek 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, index) in namespaces: {
    scope: queues[index]
    name: guid(queues[index].id, group, roleIds.serviceBusReceiver)
    properties: {
      principalId: group
      principalType: 'Group'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roleIds.serviceBusReceiver)
    }
  }
]

resource watch 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(resourceGroup().id, group, roleIds.monitoringReader)
  properties: {
    principalId: group
    principalType: 'Group'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roleIds.monitoringReader)
  }
}
