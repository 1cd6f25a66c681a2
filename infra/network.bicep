metadata description = 'The network of one region: what its app goes out through, and where everything private is reached.'

@description('Required. Name of the region.')
param region string

@description('Required. Azure location of the region.')
param location string

@description('Optional. Addresses of the network. The networks of the regions are not joined, so all may have the same.')
param addresses string = '10.60.0.0/22'

@description('Optional. Addresses of the app\'s instances, within those of the network; nothing else may be there.')
param appAddresses string = '10.60.0.0/23'

@description('Optional. Addresses of the private endpoints, within those of the network.')
param endpointAddresses string = '10.60.2.0/24'

@description('Optional. Tags put on every resource.')
param tags { *: string } = {}

resource network 'Microsoft.Network/virtualNetworks@2025-07-01' = {
  name: 'vnet-lockstep-${region}'
  location: location
  tags: tags
  properties: {
    addressSpace: { addressPrefixes: [addresses] }
    subnets: [
      {
        name: 'apps'
        properties: {
          addressPrefix: appAddresses
          // Flex Consumption goes out through subnets that are given to this service alone.
          delegations: [
            {
              name: 'flex'
              properties: { serviceName: 'Microsoft.App/environments' }
            }
          ]
        }
      }
      {
        name: 'endpoints'
        properties: { addressPrefix: endpointAddresses }
      }
    ]
  }
}

@description('Resource id of the network.')
output networkId string = network.id

@description('Resource id of the subnet that the app goes out through.')
output appSubnetId string = '${network.id}/subnets/apps'

@description('Resource id of the subnet of the private endpoints.')
output endpointSubnetId string = '${network.id}/subnets/endpoints'
