import { databaseName, journalName, leasesName } from 'journal.bicep'

metadata description = 'One region: its namespace and queues, its function app, and what that app needs around it.'

@description('Required. Name of the region.')
@minLength(1)
@maxLength(9)
param region string

@description('Required. Azure location of everything in this file.')
param location string

@description('Required. Names of all regions, the primary first.')
param regions string[]

@description('Required. Suffix that makes names unique in the world.')
param token string

@description('Required. Endpoint of the Cosmos account.')
param journalEndpoint string

@description('Required. Every location of the journal, comma separated, the nearest first: a client writes to none that it was not told of.')
param journalLocations string

@description('Optional. Where the handler of notices posts them; empty: each notice becomes a fault.')
param noticeUrl string = ''

@description('Optional. Where the documentation is served as a site; empty: the operations page names the place in a checkout.')
param docsUrl string = ''

@description('Optional. The regions, comma separated, that this deployment adds to or removes from; empty: nothing changes.')
param replacedRegions string = ''

@description('Optional. Topics whose messages come into the input queue, each in the order in which it was published.')
param inputTopics string[] = []

@description('Optional. The queues and topics that senders may ask answers to, comma separated.')
param replyQueues string = ''

@description('Optional. Container for the ledgers of producers outside the apps; empty: the journal.')
param ledgersName string = ''

@description('Optional. What callers over HTTP show: a function key, a token of Entra ID, or both. With tokens, App Service authentication is switched on, which checks them.')
@allowed(['keys', 'entra', 'both'])
param authentication string = 'keys'

@description('Optional. Client id of the application in Entra ID that callers show tokens for; needed unless they show keys alone.')
param clientId string = ''

@description('Optional. Id of the Front Door profile that may call the app over HTTP; needed with those below.')
param frontDoorId string = ''

@description('Optional. Addresses, as in 203.0.113.0/24, that alone may call the app past Front Door; none: everybody may.')
param directCallers string[] = []

@description('Optional. Where traces and metrics go by OTLP over HTTP, beside Application Insights; empty: nowhere else.')
param otlpEndpoint string = ''

@description('Optional. The part of all traces that app and host send, from 0 to 1. Metrics, on which alerts rest, are sent whole.')
param spanRatio string = '0.05'

@description('Optional. Gigabytes of logs, traces and metrics that the workspace takes in a day; what comes beyond is lost, and an alert tells of it. -1: any number.')
@minValue(-1)
param telemetryGigabytesMax int = 5

@description('Optional. DNS suffix of Service Bus; another one in sovereign clouds.')
param serviceBusDomain string = 'servicebus.windows.net'

@description('Required. The sku of the namespace.')
@allowed(['Standard', 'Premium'])
param serviceBusSku string

@description('Required. The megabytes that a queue holds.')
param queueMegabytes int

@description('Optional. Messaging units of a Premium namespace.')
@allowed([1, 2, 4, 8, 16])
param messagingUnits int = 1

// Flex Consumption scales each of these on its own, and each that stands at zero makes its first caller wait for a start.
@description('Optional. Instances kept warm for the session trigger, so that the first message of a session does not wait for a start.')
@minValue(0)
param warmReceivers int = 1

@description('Optional. Instances kept warm for HTTP, so that a sender and a health probe get their answer in time. 0 saves one where senders publish by themselves.')
@minValue(0)
param warmHttp int = 1

@description('Optional. Instances kept warm for sagas, so that a step does not wait for a start.')
@minValue(0)
param warmSagas int = 1

@description('Optional. Instances kept warm for each function that follows a change feed. With 0 a plan that has nothing to do stops them, and starts them some time after something is written; what a lost worker left is found by the sweep then.')
@minValue(0)
param warmFeeds int = 0

@description('Optional. Where sagas run: in the app\'s own storage account, in a Durable Task Scheduler, which is paid by the action, or nowhere, which is for an app that has none. Sagas do not move from one to the other: choose before there are any.')
@allowed(['storage', 'scheduler', 'none'])
param durableBackend string = 'storage'

@description('Optional. How the storage account is kept: over the zones of the region, because the region\'s host ends without it, or in one. It cannot be changed by a deployment afterwards.')
@allowed(['Standard_ZRS', 'Standard_LRS'])
param storageSku string = 'Standard_ZRS'

@description('Optional. Whether the app is spread over availability zones; it then keeps two instances warm of each kind. Service Bus is spread wherever a region has zones.')
param zoneRedundant bool = false

@description('Optional. Whether the namespace writes down what is done to it, in the workspace: it is paid by the gigabyte.')
param hasRecord bool = false

@description('Optional. Resource id of the subnet that the app goes out through; empty: none, and queues and storage are reached from everywhere.')
param subnetId string = ''

// Service Bus takes 5,000 receives of a queue at a time, and an instance has 8 sessions with 8 each (host.json).
@description('Optional. The most instances the app may scale out to.')
@minValue(1)
@maxValue(78)
param instancesMax int = 40

@description('Optional. Tags put on every resource.')
param tags { *: string } = {}

@export()
@description('What a region has that other files find by its name, which is known before there is a region.')
func namesOf(region string, token string) { *: string } => {
  app: 'func-lockstep-${region}-${token}'
  namespace: 'lockstep-${region}-${token}'
  storage: 'st${region}${token}'
  insights: 'appi-lockstep-${region}-${token}'
  workspace: 'log-lockstep-${region}-${token}'
  scheduler: 'dts-lockstep-${region}-${token}'
}

var names = namesOf(region, token)
@export()
var queueName = 'lockstep'
var outputQueueName = 'lockstep-out'
@export()
var errorQueueName = 'lockstep-errors'
var isPremium = serviceBusSku == 'Premium'
var packageContainerName = 'deployment'
// With a role only, wherever a caller is; or from the networks of the regions only, too.
var publicAccess = empty(subnetId) ? 'Enabled' : 'Disabled'

// Every namespace in every region: an app listens on its own and dispatches outputs to all.
var connections = union(
  toObject(
    regions,
    name => 'ServiceBus_${name}__fullyQualifiedNamespace',
    name => '${namesOf(name, token).namespace}.${serviceBusDomain}'
  ),
  toObject(regions, name => 'ServiceBus_${name}__credential', name => 'managedidentity'),
  toObject(regions, name => 'ServiceBus_${name}__clientId', name => identity.properties.clientId)
)

var warm = [
  { name: 'function:receive', instanceCount: warmReceivers }
  { name: 'http', instanceCount: warmHttp }
  { name: 'durable', instanceCount: durableBackend == 'none' ? 0 : warmSagas }
  // No work starts the sweep, and nobody but the sweep finds for certain what was left, or tells that something is silent.
  { name: 'function:sweep', instanceCount: 1 }
  { name: 'function:recover', instanceCount: warmFeeds }
  { name: 'function:begin_sagas', instanceCount: durableBackend == 'none' ? 0 : warmFeeds }
  { name: 'function:recover_ledgers', instanceCount: empty(ledgersName) ? 0 : warmFeeds }
]
var taskHubName = 'lockstep'
// These overrule the storage provider of host.json.
var schedulerSettings = durableBackend == 'scheduler'
  ? {
      AzureFunctionsJobHost__extensions__durableTask__storageProvider__type: 'azureManaged'
      AzureFunctionsJobHost__extensions__durableTask__storageProvider__connectionStringName: 'Scheduler'
      Scheduler: 'Endpoint=${scheduler!.properties.endpoint};Authentication=ManagedIdentity;ClientID=${identity.properties.clientId}'
    }
  : {}

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: 'id-lockstep-${region}-${token}'
  location: location
  tags: tags
}

// Premium has throughput of its own; Standard shares it with others, and is throttled.
resource namespace 'Microsoft.ServiceBus/namespaces@2026-01-01' = {
  name: names.namespace
  location: location
  tags: tags
  sku: union({ name: serviceBusSku, tier: serviceBusSku }, isPremium ? { capacity: messagingUnits } : {})
  properties: union(
    {
      disableLocalAuth: true
      minimumTlsVersion: '1.2'
      publicNetworkAccess: publicAccess
    },
    isPremium ? { premiumMessagingPartitions: 1 } : {}
  )
}

resource queue 'Microsoft.ServiceBus/namespaces/queues@2026-01-01' = {
  parent: namespace
  name: queueName
  properties: {
    requiresSession: true
    lockDuration: 'PT30S'
    // A delivery that fails pauses for up to two minutes, so that these outlast a day without the journal.
    maxDeliveryCount: 750
    defaultMessageTimeToLive: 'P14D'
    deadLetteringOnMessageExpiration: true
    maxSizeInMegabytes: queueMegabytes
  }
}

resource outputQueue 'Microsoft.ServiceBus/namespaces/queues@2026-01-01' = {
  parent: namespace
  name: outputQueueName
  properties: {
    requiresSession: true
    lockDuration: 'PT30S'
    maxDeliveryCount: 10
    defaultMessageTimeToLive: 'P14D'
    deadLetteringOnMessageExpiration: true
    maxSizeInMegabytes: queueMegabytes
  }
}

resource errorQueue 'Microsoft.ServiceBus/namespaces/queues@2026-01-01' = {
  parent: namespace
  name: errorQueueName
  properties: {
    requiresSession: true
    lockDuration: 'PT30S'
    maxDeliveryCount: 10
    defaultMessageTimeToLive: 'P14D'
    deadLetteringOnMessageExpiration: true
    maxSizeInMegabytes: queueMegabytes
  }
}

// Without the switch, a topic may hand on in another order than that in which it was published to.
resource topics 'Microsoft.ServiceBus/namespaces/topics@2026-01-01' = [
  for name in inputTopics: {
    parent: namespace
    name: name
    properties: {
      supportOrdering: true
      defaultMessageTimeToLive: 'P14D'
      maxSizeInMegabytes: queueMegabytes
    }
  }
]

// What forwards can have no sessions: they begin in the queue. What the queue does not take, the app looks for here.
resource feeds 'Microsoft.ServiceBus/namespaces/topics/subscriptions@2026-01-01' = [
  for (name, index) in inputTopics: {
    parent: topics[index]
    name: queueName
    properties: {
      forwardTo: queue.name
      maxDeliveryCount: 10
      defaultMessageTimeToLive: 'P14D'
      deadLetteringOnMessageExpiration: true
    }
  }
]

resource storage 'Microsoft.Storage/storageAccounts@2025-08-01' = {
  name: names.storage
  location: location
  tags: tags
  kind: 'StorageV2'
  // Without it the region's host ends, and every region has its own: sharing one would end them all.
  sku: { name: storageSku }
  properties: {
    publicNetworkAccess: publicAccess
    allowSharedKeyAccess: false
    allowBlobPublicAccess: false
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    defaultToOAuthAuthentication: true
  }
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2025-08-01' = {
  parent: storage
  name: 'default'
}

resource packages 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-08-01' = {
  parent: blobs
  name: packageContainerName
  properties: { publicAccess: 'None' }
}

resource scheduler 'Microsoft.DurableTask/schedulers@2026-02-01' = if (durableBackend == 'scheduler') {
  name: names.scheduler
  location: location
  tags: tags
  properties: {
    sku: { name: 'Consumption' }
    // Any address, with a role. An empty list would let none in.
    ipAllowlist: ['0.0.0.0/0']
  }
}

resource taskHub 'Microsoft.DurableTask/schedulers/taskHubs@2026-02-01' = if (durableBackend == 'scheduler') {
  parent: scheduler
  name: taskHubName
}

resource workspace 'Microsoft.OperationalInsights/workspaces@2025-07-01' = {
  name: names.workspace
  location: location
  tags: tags
  properties: {
    sku: { name: 'PerGB2018' }
    retentionInDays: 30
    workspaceCapping: { dailyQuotaGb: telemetryGigabytesMax }
  }
}

#disable-next-line use-recent-api-versions // there is no other with groups of categories
resource record 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (hasRecord) {
  scope: namespace
  name: 'record'
  properties: {
    workspaceId: workspace.id
    logs: [
      { categoryGroup: 'allLogs', enabled: true }
    ]
  }
}

resource insights 'Microsoft.Insights/components@2020-02-02' = {
  name: names.insights
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: workspace.id
    DisableLocalAuth: true
  }
}

resource plan 'Microsoft.Web/serverfarms@2025-03-01' = {
  name: 'plan-lockstep-${region}-${token}'
  location: location
  tags: tags
  kind: 'functionapp'
  sku: {
    name: 'FC1'
    tier: 'FlexConsumption'
  }
  properties: {
    reserved: true
    zoneRedundant: zoneRedundant
  }
}

resource app 'Microsoft.Web/sites@2025-03-01' = {
  name: names.app
  location: location
  tags: union(tags, { 'azd-service-name': region })
  kind: 'functionapp,linux'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: { '${identity.id}': {} }
  }
  properties: {
    serverFarmId: plan.id
    virtualNetworkSubnetId: empty(subnetId) ? null : subnetId
    httpsOnly: true
    siteConfig: {
      minTlsVersion: '1.2'
      ftpsState: 'Disabled'
      // Front Door's addresses are those of every profile there is. Who publishes has a door of its own.
      ipSecurityRestrictionsDefaultAction: empty(directCallers) ? 'Allow' : 'Deny'
      ipSecurityRestrictions: empty(directCallers)
        ? []
        : concat(
            [
              {
                name: 'front-door'
                action: 'Allow'
                priority: 100
                tag: 'ServiceTag'
                ipAddress: 'AzureFrontDoor.Backend'
                headers: { 'x-azure-fdid': [frontDoorId] }
              }
              {
                name: 'health-by-other-regions'
                action: 'Allow'
                priority: 200
                tag: 'ServiceTag'
                ipAddress: 'ApplicationInsightsAvailability'
              }
            ],
            map(directCallers, address => {
              name: 'direct-${replace(address, '/', '-')}'
              action: 'Allow'
              priority: 300
              tag: 'Default'
              ipAddress: address
            })
          )
      scmIpSecurityRestrictionsUseMain: false
      scmIpSecurityRestrictionsDefaultAction: 'Allow'
    }
    functionAppConfig: {
      runtime: {
        name: 'python'
        version: '3.13'
      }
      deployment: {
        storage: {
          type: 'blobContainer'
          value: '${storage.properties.primaryEndpoints.blob}${packageContainerName}'
          authentication: {
            type: 'UserAssignedIdentity'
            userAssignedIdentityResourceId: identity.id
          }
        }
      }
      scaleAndConcurrency: {
        instanceMemoryMB: 2048
        maximumInstanceCount: instancesMax
        alwaysReady: filter(warm, group => group.instanceCount > 0)
        // A Python app gets one call of HTTP at a time on an instance unless told otherwise. Calls wait
        // for the journal most of their time, and watchers for a change.
        triggers: { http: { perInstanceConcurrency: 64 } }
      }
    }
  }
  // The package container is named, not referenced, above.
  dependsOn: [packages]
}

// A publishing password is a key too: deployments present a token instead.
resource noScmPassword 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2025-03-01' = {
  parent: app
  name: 'scm'
  properties: { allow: false }
}

resource noFtpPassword 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2025-03-01' = {
  parent: app
  name: 'ftp'
  properties: { allow: false }
}

// It checks tokens, and takes from clients the header in which it hands their claims over.
resource tokens 'Microsoft.Web/sites/config@2025-03-01' = if (authentication != 'keys') {
  parent: app
  name: 'authsettingsV2'
  properties: {
    platform: { enabled: true }
    globalValidation: {
      // The app asks for a right at every path but /api/health: it sends a browser to sign in, and answers 401 to others.
      requireAuthentication: false
      unauthenticatedClientAction: 'AllowAnonymous'
    }
    identityProviders: {
      azureActiveDirectory: {
        enabled: true
        registration: {
          clientId: clientId
          openIdIssuer: '${environment().authentication.loginEndpoint}${subscription().tenantId}/v2.0'
        }
        validation: {
          allowedAudiences: [clientId, 'api://${clientId}']
        }
      }
    }
    login: {
      tokenStore: { enabled: false }
    }
  }
}

resource settings 'Microsoft.Web/sites/config@2025-03-01' = {
  parent: app
  name: 'appsettings'
  properties: union(connections, schedulerSettings, {
    LOCKSTEP_REGION: region
    LOCKSTEP_REGIONS: join(regions, ',')
    LOCKSTEP_REGIONS_REPLACED: replacedRegions
    LOCKSTEP_QUEUE: queueName
    LOCKSTEP_INPUT_TOPICS: join(inputTopics, ',')
    LOCKSTEP_SERVICE_BUS_SKU: serviceBusSku
    LOCKSTEP_OUTPUT_QUEUE: outputQueueName
    LOCKSTEP_ERROR_QUEUE: errorQueueName
    LOCKSTEP_DATABASE: databaseName
    LOCKSTEP_JOURNAL: journalName
    LOCKSTEP_LEASES: leasesName
    LOCKSTEP_LEDGERS: ledgersName
    LOCKSTEP_SECONDARY_DELAY_SECONDS: '15'
    LOCKSTEP_GAP_WAIT_SECONDS: '5'
    LOCKSTEP_RECOVERY_LAG_SECONDS: '5'
    LOCKSTEP_COSMOS_LOCATIONS: journalLocations
    LOCKSTEP_JOURNAL_CALL_SECONDS: '10'
    LOCKSTEP_NOTICE_URL: noticeUrl
    LOCKSTEP_REPLY_QUEUES: replyQueues
    LOCKSTEP_AUTHENTICATION: authentication
    LOCKSTEP_LOG_MESSAGES: 'no'
    LOCKSTEP_DOCS_URL: docsUrl
    LOCKSTEP_TRACE_RATIO: '0'
    LOCKSTEP_SPAN_RATIO: spanRatio
    // For the host alone: its exporter knows samplers of Microsoft's only, and the app's SDK knows none of them.
    OTEL_TRACES_SAMPLER: 'microsoft.fixed_percentage'
    OTEL_TRACES_SAMPLER_ARG: spanRatio
    OTEL_EXPORTER_OTLP_ENDPOINT: otlpEndpoint
    LOCKSTEP_ACKNOWLEDGE_SECONDS: '0.5'
    LOCKSTEP_STANDSTILL_SECONDS: '300'
    LOCKSTEP_LEASE_SECONDS: '30'
    LOCKSTEP_HANDLER_SECONDS: '60'
    LOCKSTEP_WINDOW_DAYS: '7'
    LOCKSTEP_RETENTION_DAYS: '7'
    LOCKSTEP_KEEP_INPUTS: 'no'
    LOCKSTEP_PREFERENCE: 'first'
    LOCKSTEP_UNNUMBERED_ORDER: 'any'
    LOCKSTEP_INSTANCES_MAX: string(instancesMax)
    LOCKSTEP_COMPACT_SCHEDULE: '0 */10 * * * *'
    LOCKSTEP_SWEEP_SCHEDULE: '*/15 * * * * *'
    Cosmos__accountEndpoint: journalEndpoint
    Cosmos__credential: 'managedidentity'
    Cosmos__clientId: identity.properties.clientId
    AzureWebJobsStorage__blobServiceUri: storage.properties.primaryEndpoints.blob
    AzureWebJobsStorage__queueServiceUri: storage.properties.primaryEndpoints.queue
    AzureWebJobsStorage__tableServiceUri: storage.properties.primaryEndpoints.table
    AzureWebJobsStorage__credential: 'managedidentity'
    AzureWebJobsStorage__clientId: identity.properties.clientId
    // An address, not a secret: the component takes telemetry only from an identity with the publisher role.
    APPLICATIONINSIGHTS_CONNECTION_STRING: insights.properties.ConnectionString
    APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${identity.properties.clientId};Authorization=AAD'
  })
  // Tokens are believed only after somebody checks them.
  dependsOn: [tokens]
}

@description('Name of the function app.')
output appName string = app.name

@description('Base address of its HTTP functions.')
output appUrl string = 'https://${app.properties.defaultHostName}'

@description('Principal of the identity the app runs as.')
output principalId string = identity.properties.principalId

@description('Host of this region\'s Service Bus namespace.')
output namespaceHost string = '${names.namespace}.${serviceBusDomain}'

@description('The most instances that the app may scale out to.')
output instancesMax int = instancesMax

@description('Resource id of the Application Insights component.')
output insightsId string = insights.id

@description('Resource id of the storage account, which holds the package of the app.')
output storageId string = storage.id

@description('Resource id of the function app.')
output appId string = app.id

@description('Resource id of the workspace that logs and metrics are kept in.')
output workspaceId string = workspace.id

@description('Resource id of the Service Bus namespace.')
output namespaceId string = namespace.id
