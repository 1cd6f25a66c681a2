// Two regions by name, because a parameter of each says where it is. CONTRIBUTING.md lists what a third one needs.
metadata description = 'Lockstep: two regions that process, and one journal in three regions that decides.'
targetScope = 'subscription'

@description('Required. Name of the environment; it names the resource group and seeds every other name.')
@minLength(1)
@maxLength(32)
param environmentName string

@description('Required. Where the resource group and the deployment record live. The resources themselves go where the other parameters say.')
param location string

@description('Optional. The region that normally does the work; the other one receives later copies and takes over.')
@allowed(['east', 'west'])
param primary string = 'east'

@description('Optional. Azure location of region east. It must offer Flex Consumption.')
param eastLocation string = 'eastus2'

@description('Optional. Azure location of region west. It must offer Flex Consumption.')
param westLocation string = 'westus3'

// Three at least: with two, strong consistency blocks every write while one of them is lost.
@description('Optional. Azure locations of the journal, the write region first, then in the order of fail-over. Both processing locations belong in it.')
@minLength(3)
@maxLength(5)
param journalLocations array = [
  'eastus2'
  'westus3'
  'centralus'
]

@description('Optional. Ceiling of the journal container in request units per second; it idles at a tenth of this.')
@minValue(1000)
param journalThroughputMax int = 4000

@description('Optional. Where the handler of notices posts them; empty: each notice becomes a fault.')
param noticeUrl string = ''

@description('Optional. The regions, comma separated, that this deployment adds to or removes from; empty: nothing changes.')
param replacedRegions string = ''

@description('Optional. The queues and topics that senders may ask answers to, comma separated.')
param replyQueues string = ''

var tags = { 'azd-env-name': environmentName }
var token = uniqueString(subscription().id, environmentName)
var regions = primary == 'west' ? 'west,east' : 'east,west'

// Known before either region exists, because each region's app is told both names.
var eastNamespace = 'lockstep-east-${token}'
var westNamespace = 'lockstep-west-${token}'

resource group 'Microsoft.Resources/resourceGroups@2024-03-01' = {
  name: 'rg-${environmentName}'
  location: location
  tags: tags
}

module journal 'journal.bicep' = {
  name: 'lockstep-journal'
  scope: group
  params: {
    accountName: 'lockstep-journal-${token}'
    locations: journalLocations
    throughputMax: journalThroughputMax
    tags: tags
  }
}

module east 'region.bicep' = {
  name: 'lockstep-east'
  scope: group
  params: {
    region: 'east'
    location: eastLocation
    journalLocations: join(union([eastLocation], journalLocations), ',')
    regions: regions
    token: token
    eastNamespace: eastNamespace
    westNamespace: westNamespace
    journalEndpoint: journal.outputs.endpoint
    databaseName: journal.outputs.databaseName
    journalName: journal.outputs.journalName
    leasesName: journal.outputs.leasesName
    noticeUrl: noticeUrl
    replacedRegions: replacedRegions
    replyQueues: replyQueues
    tags: tags
  }
}

module west 'region.bicep' = {
  name: 'lockstep-west'
  scope: group
  params: {
    region: 'west'
    location: westLocation
    journalLocations: join(union([westLocation], journalLocations), ',')
    regions: regions
    token: token
    eastNamespace: eastNamespace
    westNamespace: westNamespace
    journalEndpoint: journal.outputs.endpoint
    databaseName: journal.outputs.databaseName
    journalName: journal.outputs.journalName
    leasesName: journal.outputs.leasesName
    noticeUrl: noticeUrl
    replacedRegions: replacedRegions
    replyQueues: replyQueues
    tags: tags
  }
}

module eastAccess 'access.bicep' = {
  name: 'lockstep-access-east'
  scope: group
  params: {
    principalId: east.outputs.principalId
    ownNamespace: east.outputs.namespaceName
    peerNamespace: west.outputs.namespaceName
    storageName: east.outputs.storageName
    insightsName: east.outputs.insightsName
    accountName: journal.outputs.accountName
  }
}

module westAccess 'access.bicep' = {
  name: 'lockstep-access-west'
  scope: group
  params: {
    principalId: west.outputs.principalId
    ownNamespace: west.outputs.namespaceName
    peerNamespace: east.outputs.namespaceName
    storageName: west.outputs.storageName
    insightsName: west.outputs.insightsName
    accountName: journal.outputs.accountName
  }
  // One change at a time: a Cosmos account refuses a role assignment while another one is being made.
  dependsOn: [eastAccess]
}

@description('The resource group everything is in.')
output AZURE_RESOURCE_GROUP string = group.name

@description('Function app of region east, the name to publish to.')
output LOCKSTEP_EAST_APP string = east.outputs.appName

@description('Function app of region west, the name to publish to.')
output LOCKSTEP_WEST_APP string = west.outputs.appName

@description('Base address of the HTTP functions of region east.')
output LOCKSTEP_EAST_URL string = east.outputs.appUrl

@description('Base address of the HTTP functions of region west.')
output LOCKSTEP_WEST_URL string = west.outputs.appUrl

@description('Service Bus host of region east, for producers outside the apps.')
output LOCKSTEP_EAST_SERVICEBUS string = east.outputs.namespaceHost

@description('Service Bus host of region west, for producers outside the apps.')
output LOCKSTEP_WEST_SERVICEBUS string = west.outputs.namespaceHost

@description('Endpoint of the Cosmos account that holds the journal.')
output LOCKSTEP_JOURNAL_ENDPOINT string = journal.outputs.endpoint
