metadata description = 'What one region reaches privately: the journal, the queues of every region, and the app\'s own storage.'

@description('Required. Azure location of the region.')
param location string

@description('Required. Resource id of the region\'s network.')
param networkId string

@description('Required. Resource id of the subnet that endpoints lie in.')
param subnetId string

@description('Required. Resource id of the Cosmos account.')
param accountId string

@description('Required. Each region\'s name, and the resource id of its Service Bus namespace.')
param namespaces { name: string, id: string }[]

@description('Required. Resource id of the app\'s storage account.')
param storageId string

@description('Optional. DNS suffix of Service Bus; another one in sovereign clouds.')
param serviceBusDomain string = 'servicebus.windows.net'

@description('Optional. DNS suffix of Cosmos DB; another one in sovereign clouds.')
param cosmosDomain string = 'documents.azure.com'

@description('Optional. DNS suffix of storage: that of the cloud that is deployed to.')
param storageDomain string = environment().suffixes.storage

@description('Optional. Tags put on every resource.')
param tags { *: string } = {}

var zoneNames = [
  'privatelink.${cosmosDomain}'
  'privatelink.${serviceBusDomain}'
  'privatelink.blob.${storageDomain}'
  'privatelink.queue.${storageDomain}'
  'privatelink.table.${storageDomain}'
]

// Each region reaches the journal and every namespace through endpoints of its own: another region's would go with it.
var targets = concat(
  [
    { name: 'journal', id: accountId, part: 'Sql', zone: 0 }
    { name: 'blob', id: storageId, part: 'blob', zone: 2 }
    { name: 'queue', id: storageId, part: 'queue', zone: 3 }
    { name: 'table', id: storageId, part: 'table', zone: 4 }
  ],
  map(namespaces, one => ({ name: 'bus-${one.name}', id: one.id, part: 'namespace', zone: 1 }))
)

resource zones 'Microsoft.Network/privateDnsZones@2024-06-01' = [
  for name in zoneNames: {
    name: name
    location: 'global'
    tags: tags
  }
]

resource links 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = [
  for (name, index) in zoneNames: {
    parent: zones[index]
    name: 'lockstep'
    location: 'global'
    tags: tags
    properties: {
      registrationEnabled: false
      virtualNetwork: { id: networkId }
    }
  }
]

resource endpoints 'Microsoft.Network/privateEndpoints@2025-07-01' = [
  for target in targets: {
    name: 'pe-lockstep-${target.name}'
    location: location
    tags: tags
    properties: {
      subnet: { id: subnetId }
      privateLinkServiceConnections: [
        {
          name: target.name
          properties: {
            #disable-next-line use-resource-id-functions // it is one of the parameters, by way of the list above
            privateLinkServiceId: target.id
            groupIds: [target.part]
          }
        }
      ]
    }
  }
]

resource records 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2025-07-01' = [
  for (target, index) in targets: {
    parent: endpoints[index]
    name: 'default'
    properties: {
      privateDnsZoneConfigs: [
        {
          name: 'zone'
          properties: { privateDnsZoneId: zones[target.zone].id }
        }
      ]
    }
  }
]
