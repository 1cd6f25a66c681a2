metadata description = 'Every role of Azure that one region\'s identity holds. There are no keys: what is listed neither here nor in journal_access.bicep is refused.'

@description('Required. Principal of the identity the region\'s app runs as.')
param principalId string

@description('Required. Service Bus namespace of the same region.')
param ownNamespace string

@description('Required. Service Bus namespaces of the other regions.')
param peerNamespaces string[]

@description('Required. Storage account of the same region.')
param storageName string

@description('Required. Application Insights component of the same region.')
param insightsName string

@description('Optional. Durable Task Scheduler of the same region; empty: sagas run in the storage account.')
param schedulerName string = ''

@description('Optional. Whether the app may count the messages that wait, and so scale by them. It counts messages, not sessions: it starts instances that find every session taken, and needs a right to manage the namespace.')
param scaleByBacklog bool = false

var roleIds = {
  // Azure Service Bus Data Receiver: take sessions from the own queue, and nothing else.
  serviceBusReceiver: '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'
  // Azure Service Bus Data Owner: in its place where the platform shall count the messages that wait (scaleByBacklog).
  serviceBusOwner: '090c5cfd-751d-490a-894a-3ce6f1109419'
  // Azure Service Bus Data Sender: publish messages and dispatch outputs, in every region.
  serviceBusSender: '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'
  // Storage Blob Data Owner: the host keeps its locks and keys in blobs and reads its deployment package.
  storageBlobOwner: 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b'
  // Storage Queue Data Contributor: Durable's work items are queue messages.
  storageQueueContributor: '974c5e8b-45b9-4653-ba55-5f855dd0fb88'
  // Storage Table Data Contributor: Durable's histories are table rows.
  storageTableContributor: '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3'
  // Monitoring Metrics Publisher: send telemetry to a component that takes none without an identity.
  metricsPublisher: '3913510d-42f4-4e42-8a64-420c390055eb'
  // Durable Task Data Contributor: run sagas in the task hub of a Durable Task Scheduler, where there is one.
  taskHubContributor: '0ad04412-c4d5-4796-b79c-f76d14c8d402'
}
var receiving = scaleByBacklog ? roleIds.serviceBusOwner : roleIds.serviceBusReceiver

resource own 'Microsoft.ServiceBus/namespaces@2026-01-01' existing = {
  name: ownNamespace
}

resource peers 'Microsoft.ServiceBus/namespaces@2026-01-01' existing = [
  for name in peerNamespaces: {
    name: name
  }
]

resource storage 'Microsoft.Storage/storageAccounts@2025-08-01' existing = {
  name: storageName
}

resource insights 'Microsoft.Insights/components@2020-02-02' existing = {
  name: insightsName
}

resource receiveFromOwn 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: own
  name: guid(own.id, principalId, receiving)
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', receiving)
  }
}

resource sendToOwn 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: own
  name: guid(own.id, principalId, roleIds.serviceBusSender)
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roleIds.serviceBusSender)
  }
}

resource sendToPeers 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, index) in peerNamespaces: {
    scope: peers[index]
    name: guid(peers[index].id, principalId, roleIds.serviceBusSender)
    properties: {
      principalId: principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roleIds.serviceBusSender)
    }
  }
]

resource ownBlobs 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: storage
  name: guid(storage.id, principalId, roleIds.storageBlobOwner)
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roleIds.storageBlobOwner)
  }
}

resource ownQueues 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: storage
  name: guid(storage.id, principalId, roleIds.storageQueueContributor)
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roleIds.storageQueueContributor)
  }
}

resource ownTables 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: storage
  name: guid(storage.id, principalId, roleIds.storageTableContributor)
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roleIds.storageTableContributor)
  }
}

resource publishMetrics 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: insights
  name: guid(insights.id, principalId, roleIds.metricsPublisher)
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roleIds.metricsPublisher)
  }
}

resource scheduler 'Microsoft.DurableTask/schedulers@2026-02-01' existing = if (!empty(schedulerName)) {
  name: schedulerName
}

resource runSagas 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(schedulerName)) {
  scope: scheduler
  name: guid(scheduler.id, principalId, roleIds.taskHubContributor)
  properties: {
    principalId: principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roleIds.taskHubContributor)
  }
}
