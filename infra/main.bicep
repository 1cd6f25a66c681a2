// Two regions are the default of a list: one more entry is one more region (CONTRIBUTING.md, "Add a region").
metadata description = 'Lockstep: two to five regions that process, and one journal in three to five that decides.'
targetScope = 'subscription'

import { databaseName } from 'journal.bicep'
import { errorQueueName, namesOf, queueName } from 'region.bicep'

@description('A region that processes.')
type Place = {
  @description('Its name in settings and azure.yaml: lower-case letters and digits, because a storage account carries it.')
  @minLength(1)
  @maxLength(9)
  name: string
  @description('Azure location of everything in it, which must offer Flex Consumption.')
  location: string
}

@description('What azd and infra/hooks.py are told of a region.')
type App = {
  @description('Name of the region.')
  name: string
  @description('Name of its function app.')
  app: string
  @description('Resource id of the app.')
  appId: string
  @description('Base address of the app.')
  url: string
  @description('Host of its Service Bus namespace.')
  serviceBus: string
  @description('Principal of the identity that the app runs as.')
  principalId: string
  @description('Resource id of its storage account.')
  storageId: string
  @description('Where its sagas run.')
  durable: string
  @description('The most instances that the app may scale out to.')
  instancesMax: int
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
param journalLocations string[] = [
  'eastus2'
  'westus3'
  'centralus'
]

@description('Optional. Name of the Cosmos account that holds the journal; empty: one that follows from the environment. A restored journal has another one.')
param journalAccount string = ''

@description('Optional. Where Azure keeps the record of that account; empty: with the resource group. Azure refuses to change it, so it is named for an account that was restored, or created elsewhere.')
param journalAccountLocation string = ''

@description('Optional. Ceiling of the journal container in request units per second; it idles at a tenth of this.')
@minValue(1000)
param journalThroughputMax int = 4000

// Azure moves a namespace from Standard to Premium, and none back.
@description('Optional. The sku of the namespaces. Standard is paid by the operation, and takes bodies of 250 kB, 1,000 operations a second and queues of 5 GB; Premium is paid by the hour, and takes 1 MB, 80 GB and private endpoints. It cannot be changed in place.')
@allowed(['Standard', 'Premium'])
param serviceBusSku string = 'Standard'

@description('Optional. Where the handler of notices posts them; empty: each notice becomes a fault.')
param noticeUrl string = ''

@description('Optional. Where the documentation is served as a site; empty: the operations page names the place in a checkout.')
param docsUrl string = ''

@description('Optional. The regions, comma separated, that this deployment adds to or removes from; empty: nothing changes.')
param replacedRegions string = ''

@description('Optional. Names of topics that the namespace of each region gets, whose messages come into the input queue.')
param inputTopics string[] = []

@description('Optional. The queues and topics that senders may ask answers to, comma separated.')
param replyQueues string = ''

@description('Optional. Object ids of the identities of producers outside the apps, such as Spark jobs: each may send to the input queues and keep its ledgers in a container apart from the journal, and nothing else.')
param producers string[] = []

@description('Optional. Container for the ledgers of producers outside the apps; empty: "ledgers" where there are producers, else none, and ledgers lie in the journal.')
param ledgersName string = ''

@description('Optional. What callers over HTTP show: a function key, a token of Entra ID, or both. With tokens, App Service authentication is switched on, which checks them.')
@allowed(['keys', 'entra', 'both'])
param authentication string = 'keys'

@description('Optional. Client id of the application in Entra ID that callers show tokens for; needed unless they show keys alone.')
param clientId string = ''

@description('Optional. Where traces and metrics go by OTLP over HTTP, beside Application Insights; empty: nowhere else.')
param otlpEndpoint string = ''

@description('Optional. The part of all traces that apps and hosts send, from 0 to 1. Metrics, on which alerts rest, are sent whole.')
param spanRatio string = '0.05'

@description('Optional. Gigabytes of logs, traces and metrics that the workspace of each region takes in a day; what comes beyond is lost, and an alert tells of it. -1: any number.')
@minValue(-1)
param telemetryGigabytesMax int = 5

@description('Optional. Where sagas run: in storage accounts, in Durable Task Schedulers, which are paid by the action, or nowhere, which is for apps that have none. Sagas do not move from one to the other: choose before there are any.')
@allowed(['storage', 'scheduler', 'none'])
param durableBackend string = 'storage'

@description('Optional. Whether apps may count the messages that wait, and so scale by them. It counts messages, not sessions: it starts instances that find every session taken, and needs a right to manage the namespaces.')
param scaleByBacklog bool = false

@description('Optional. Whether a region is spread over its availability zones. It costs more; without it, losing a zone may be losing a region, which the others endure.')
param zoneRedundant bool = false

@description('Optional. How the storage account of each region is kept: over the zones of the region, or in one, where a region has no zones or the account is there already.')
@allowed(['Standard_ZRS', 'Standard_LRS'])
param storageSku string = 'Standard_ZRS'

@description('Optional. How far back the journal can be restored to any second: seven days, or thirty for a price.')
@allowed(['Continuous7Days', 'Continuous30Days'])
param backupTier string = 'Continuous7Days'

// On by default: the primary usually lies where the journal is written, so without it the loss of that one region stops
// all of them, for as long as Microsoft takes to decide.
@description('Optional. Whether the writes of each partition of the journal move by themselves when their region fails, within minutes. It belongs to the Business Critical tier of Cosmos DB, which has a price; without it the whole account fails over, which may take an hour or more.')
param partitionFailover bool = true

@description('Optional. Whether deleting the journal is refused until its lock is removed. Only a trial has no need of it.')
param lockJournal bool = true

@description('Optional. Whether one address serves HTTP for all regions and leaves out one that is down: Azure Front Door, which has a price. The apps then take nothing from elsewhere. Senders that publish by themselves need none.')
param frontDoor bool = false

@description('Optional. The addresses, as in 203.0.113.0/24 and comma separated, that reach the apps past Front Door: of those who deploy, because each deployment asks the app for its health, and who open the operations page of a region. Needed with Front Door.')
param directCallers string = ''

@description('Optional. Whether queues, journal and storage are reached from networks of the regions alone, by private endpoints: senders outside them then come over HTTP. It has a price by the hour.')
param privateNetwork bool = false

@description('Optional. Object id of the group in Entra ID whose members may see metrics and logs, query the journal and look at the error queues; empty: nobody.')
param readers string = ''

@description('Optional. Whether the namespaces and the journal write down what is done to them: it is paid by the gigabyte.')
param keepRecord bool = false

// Without a default, so that who deploys is asked for it.
@description('Required. Addresses that alerts and budgets are mailed to, comma separated; none: there are no alerts, and nobody is told of anything.')
param emails string

@description('Optional. The amount a month for everything, in the currency of the subscription, that mail is sent about; 0: none.')
@minValue(0)
param monthlyBudget int = 0

@description('Optional. First day of the month from which the budget counts, as in 2026-12-01; needed with a budget.')
param budgetFrom string = ''

var tags = { 'azd-env-name': environmentName }
var token = uniqueString(subscription().id, environmentName)
var names = map(regions, place => place.name)
var leader = empty(primary) ? names[0] : contains(names, primary) ? primary : fail('primary is no region: ${primary}')
var preference = union([leader], names)
var ledgers = (empty(ledgersName) && !empty(producers)) ? 'ledgers' : ledgersName
// Tokens for no application would be nobody's.
var application = authentication == 'keys' ? '' : empty(clientId) ? fail('clientId is needed for tokens') : clientId
var sku = privateNetwork && serviceBusSku == 'Standard'
  ? fail('privateNetwork needs the serviceBusSku Premium: a namespace of the sku Standard has no private endpoints')
  : serviceBusSku
// The most that each allows. By default it is 1 GB, which a million messages of 1 kB fill while an app is away.
var queueMegabytes = sku == 'Premium' ? 81920 : 5120
// What is no address, such as the word none, is nobody's.
var addresses = filter(map(split(emails, ','), one => trim(one)), one => contains(one, '@'))
var accountName = empty(journalAccount) ? 'lockstep-journal-${token}' : journalAccount
var accountId = resourceId(
  subscription().subscriptionId,
  journalGroup.name,
  'Microsoft.DocumentDB/databaseAccounts',
  accountName
)
var everyLocation = union(journalLocations, map(regions, place => place.location))
// Azure would refuse a budget that tells nobody, or begins never, when all else is there.
var budgetStart = monthlyBudget > 0 && (empty(addresses) || empty(budgetFrom))
  ? fail('monthlyBudget needs an address in emails, and the day from which it counts in budgetFrom')
  : budgetFrom
var callers = frontDoor
  ? (empty(directCallers)
      ? fail('frontDoor needs directCallers: who deploys asks each app for its health')
      : map(split(directCallers, ','), one => trim(one)))
  : []

resource group 'Microsoft.Resources/resourceGroups@2025-04-01' = {
  name: 'rg-${environmentName}'
  location: location
  tags: tags
}

// A group of its own, so that all else can be deleted without it.
resource journalGroup 'Microsoft.Resources/resourceGroups@2025-04-01' = {
  name: 'rg-${environmentName}-journal'
  location: location
  tags: tags
}

// A group for each region's network: a group can have a DNS zone once, and each region has its own.
resource networkGroup 'Microsoft.Resources/resourceGroups@2025-04-01' = [
  for place in (privateNetwork ? regions : []): {
    name: 'rg-${environmentName}-network-${place.name}'
    location: location
    tags: tags
  }
]

module network 'network.bicep' = [
  for (place, index) in (privateNetwork ? regions : []): {
    scope: networkGroup[index]
    params: {
      region: place.name
      location: place.location
      tags: tags
    }
  }
]

module journal 'journal.bicep' = {
  scope: journalGroup
  params: {
    accountName: accountName
    location: empty(journalAccountLocation) ? location : journalAccountLocation
    locations: everyLocation
    throughputMax: journalThroughputMax
    zoneRedundant: zoneRedundant
    backupTier: backupTier
    partitionFailover: partitionFailover
    isLocked: lockJournal
    isPrivate: privateNetwork
    ledgersName: ledgers
    tags: tags
  }
}

// Before the apps, which take calls from it alone.
module front 'front.bicep' = if (frontDoor) {
  scope: group
  params: {
    token: token
    origins: map(names, name => {
      name: name
      host: '${namesOf(name, token).app}.azurewebsites.net'
    })
    tags: tags
  }
}

// One after the other: new settings restart an app, and meanwhile the other regions do its work.
@batchSize(1)
module region 'region.bicep' = [
  for (place, index) in regions: {
    scope: group
    params: {
      region: place.name
      location: place.location
      journalLocations: join(union([place.location], everyLocation), ',')
      regions: preference
      token: token
      journalEndpoint: journal.outputs.endpoint
      serviceBusSku: sku
      queueMegabytes: queueMegabytes
      noticeUrl: noticeUrl
      docsUrl: docsUrl
      replacedRegions: replacedRegions
      inputTopics: inputTopics
      replyQueues: replyQueues
      otlpEndpoint: otlpEndpoint
      spanRatio: spanRatio
      telemetryGigabytesMax: telemetryGigabytesMax
      ledgersName: ledgers
      authentication: authentication
      clientId: application
      frontDoorId: frontDoor ? front!.outputs.id : ''
      directCallers: callers
      durableBackend: durableBackend
      zoneRedundant: zoneRedundant
      storageSku: storageSku
      hasRecord: keepRecord
      subnetId: privateNetwork ? network[index].outputs.appSubnetId : ''
      tags: tags
    }
  }
]

module endpoints 'endpoints.bicep' = [
  for (place, index) in (privateNetwork ? regions : []): {
    scope: networkGroup[index]
    params: {
      location: place.location
      networkId: network[index].outputs.networkId
      subnetId: network[index].outputs.endpointSubnetId
      accountId: accountId
      namespaces: [
        for (each, number) in regions: {
          name: each.name
          id: region[number].outputs.namespaceId
        }
      ]
      storageId: region[index].outputs.storageId
      tags: tags
    }
  }
]

module access 'access.bicep' = [
  for (place, index) in regions: {
    scope: group
    params: {
      // Azure does not give a role to another identity, so an identity that is made anew has roles of other names.
      #disable-next-line what-if-short-circuiting
      principalId: region[index].outputs.principalId
      ownNamespace: namesOf(place.name, token).namespace
      peerNamespaces: map(filter(names, name => place.name != name), name => namesOf(name, token).namespace)
      storageName: namesOf(place.name, token).storage
      insightsName: namesOf(place.name, token).insights
      schedulerName: durableBackend == 'scheduler' ? namesOf(place.name, token).scheduler : ''
      scaleByBacklog: scaleByBacklog
    }
    dependsOn: [region]
  }
]

module journalAccess 'journal_access.bicep' = {
  scope: journalGroup
  params: {
    accountName: accountName
    writers: [for (place, index) in regions: region[index].outputs.principalId]
    readers: readers
    producers: producers
    ledgersPath: '/dbs/${databaseName}/colls/${ledgers}'
    hasRecord: keepRecord
    workspaceId: region[0].outputs.workspaceId
  }
}

module people 'people.bicep' = if (!empty(readers)) {
  scope: group
  params: {
    group: readers
    namespaces: map(names, name => namesOf(name, token).namespace)
    errorQueue: errorQueueName
  }
  dependsOn: [region]
}

// The metrics of the journal's account.
module journalPeople 'people.bicep' = if (!empty(readers)) {
  scope: journalGroup
  params: { group: readers }
}

module producersAccess 'producers.bicep' = [
  for (place, index) in (empty(producers) ? [] : regions): {
    scope: group
    params: {
      producers: producers
      namespaceName: namesOf(place.name, token).namespace
      queueName: queueName
    }
    dependsOn: [region]
  }
]

module watch 'watch.bicep' = [
  for (place, index) in (empty(addresses) ? [] : regions): {
    scope: group
    params: {
      region: place.name
      location: place.location
      workspaceName: namesOf(place.name, token).workspace
      insightsId: region[index].outputs.insightsId
      namespaceId: region[index].outputs.namespaceId
      queueMegabytes: queueMegabytes
      appId: region[index].outputs.appId
      instancesMax: region[index].outputs.instancesMax
      apps: [
        for (each, number) in regions: {
          name: each.name
          url: region[number].outputs.appUrl
          storageId: region[number].outputs.storageId
        }
      ]
      emails: addresses
      // The record goes to the workspace of the first region (journalAccess).
      hasJournalRecord: keepRecord && index == 0
      journalId: index == 0 ? accountId : ''
      partitionFailover: partitionFailover && index == 0
      writeRegion: journal.outputs.writeRegion
      tags: tags
    }
  }
]

module budget 'budget.bicep' = if (monthlyBudget > 0) {
  params: {
    environmentName: environmentName
    groups: concat(
      [group.name, journalGroup.name],
      map(privateNetwork ? names : [], name => 'rg-${environmentName}-network-${name}')
    )
    #disable-next-line BCP329 // the condition holds for 1 and more
    amount: monthlyBudget
    from: budgetStart
    emails: addresses
  }
}

@description('The resource group of everything but the journal.')
output AZURE_RESOURCE_GROUP string = group.name

@description('The resource group of the journal.')
output LOCKSTEP_JOURNAL_GROUP string = journalGroup.name

@description('Resource id of the lock on the journal; empty if there is none.')
output LOCKSTEP_LOCK string = journal.outputs.lockId

@description('The one address of all regions; empty without Front Door.')
output LOCKSTEP_URL string = frontDoor ? front!.outputs.url : ''

@description('Who is told when something is wrong, comma separated; empty: nobody.')
output LOCKSTEP_ALERTED string = join(addresses, ',')

@description('Endpoint of the Cosmos account that holds the journal.')
output LOCKSTEP_JOURNAL_ENDPOINT string = journal.outputs.endpoint

@description('Each region: its name, its function app, the base address of its HTTP functions, its Service Bus host, and what infra/hooks.py looks at.')
output LOCKSTEP_APPS App[] = [
  for (place, index) in regions: {
    name: place.name
    app: region[index].outputs.appName
    appId: region[index].outputs.appId
    url: region[index].outputs.appUrl
    serviceBus: region[index].outputs.namespaceHost
    principalId: region[index].outputs.principalId
    storageId: region[index].outputs.storageId
    durable: durableBackend
    instancesMax: region[index].outputs.instancesMax
  }
]
