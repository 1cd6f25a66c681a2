// Two regions are the default of a list: one more entry is one more region (CONTRIBUTING.md, "Add a region").
metadata description = 'Lockstep: two to five regions that process, and one journal in three to five that decides.'
targetScope = 'subscription'

// A region that processes: its name in settings and azure.yaml (lower-case letters and digits, at most nine, because
// a storage account carries it), and the Azure location of everything in it, which must offer Flex Consumption.
type Place = {
  name: string
  location: string
}

@description('Required. Name of the environment; it names the resource group and seeds every other name.')
@minLength(1)
@maxLength(32)
param environmentName string

@description('Required. Where the resource group and the deployment record live. The resources themselves go where the other parameters say.')
param location string

@description('Optional. The regions that process, in the order of preference behind the primary.')
@minLength(2)
@maxLength(5)
param regions Place[] = [
  { name: 'east', location: 'eastus2' }
  { name: 'west', location: 'westus3' }
]

@description('Optional. The region that normally does the work; the others receive later copies and take over. Empty: the first of the list.')
param primary string = ''

// Three at least: with two, strong consistency blocks every write while one of them is lost.
@description('Optional. Azure locations of the journal, the write region first, then in the order of fail-over. Those of the regions follow by themselves.')
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

@description('Optional. Container for the ledgers of producers outside the apps, which has to be there; empty: the journal.')
param ledgersName string = ''

@description('Optional. What callers over HTTP show: a function key, a token of Entra ID, or both. Tokens need App Service authentication to be on, or the app does not start.')
@allowed(['keys', 'entra', 'both'])
param authentication string = 'keys'

@description('Optional. Where traces and metrics go by OTLP over HTTP, beside Application Insights; empty: nowhere else.')
param otlpEndpoint string = ''

@description('Optional. Where sagas run: in storage accounts, or in Durable Task Schedulers, which are paid by the action. Sagas do not move from one to the other: choose before there are any.')
@allowed(['storage', 'scheduler'])
param durableBackend string = 'storage'

@description('Optional. Whether apps may count the messages that wait, and so scale by them. It counts messages, not sessions: it starts instances that find every session taken, and needs a right to manage the namespaces.')
param scaleByBacklog bool = false

var tags = { 'azd-env-name': environmentName }
var token = uniqueString(subscription().id, environmentName)
var names = map(regions, place => (place.name))
// A primary that is no region has the index -1, which ends the deployment before anything is created.
var leader = empty(primary) ? names[0] : (names[indexOf(names, primary)])
var preference = union([leader], names)
var everyLocation = union(journalLocations, map(regions, place => (place.location)))

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
    locations: everyLocation
    throughputMax: journalThroughputMax
    tags: tags
  }
}

module region 'region.bicep' = [
  for place in regions: {
    name: 'lockstep-${place.name}'
    scope: group
    params: {
      region: place.name
      location: place.location
      journalLocations: join(union([place.location], everyLocation), ',')
      regions: preference
      token: token
      journalEndpoint: journal.outputs.endpoint
      databaseName: journal.outputs.databaseName
      journalName: journal.outputs.journalName
      leasesName: journal.outputs.leasesName
      noticeUrl: noticeUrl
      replacedRegions: replacedRegions
      replyQueues: replyQueues
      otlpEndpoint: otlpEndpoint
      ledgersName: ledgersName
      authentication: authentication
      durableBackend: durableBackend
      tags: tags
    }
  }
]

// One at a time: a Cosmos account refuses a role assignment while another one is being made.
@batchSize(1)
module access 'access.bicep' = [
  for (place, index) in regions: {
    name: 'lockstep-access-${place.name}'
    scope: group
    params: {
      principalId: region[index].outputs.principalId
      ownNamespace: region[index].outputs.namespaceName
      peerNamespaces: map(filter(names, name => (place.name != name)), name => 'lockstep-${name}-${token}')
      storageName: region[index].outputs.storageName
      insightsName: region[index].outputs.insightsName
      accountName: journal.outputs.accountName
      schedulerName: region[index].outputs.schedulerName
      scaleByBacklog: scaleByBacklog
    }
    dependsOn: [region]
  }
]

@description('The resource group everything is in.')
output AZURE_RESOURCE_GROUP string = group.name

@description('Endpoint of the Cosmos account that holds the journal.')
output LOCKSTEP_JOURNAL_ENDPOINT string = journal.outputs.endpoint

@description('Each region: its name, its function app, the base address of its HTTP functions, its Service Bus host, and what infra/hooks.py looks at.')
output LOCKSTEP_APPS array = [
  for (place, index) in regions: {
    name: place.name
    app: region[index].outputs.appName
    appId: region[index].outputs.appId
    url: region[index].outputs.appUrl
    serviceBus: region[index].outputs.namespaceHost
    principalId: region[index].outputs.principalId
    storageId: region[index].outputs.storageId
  }
]
