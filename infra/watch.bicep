metadata description = 'What is watched in one region: an alert for each symptom of docs/runbook.md, and a workbook that shows the same.'

@description('Required. Name of the region.')
param region string

@description('Required. Azure location of the region.')
param location string

@description('Required. Name of the workspace that the region\'s logs and metrics are kept in.')
param workspaceName string

@description('Required. Application Insights component of the region, from which the other regions are asked for their health.')
param insightsId string

@description('Required. Service Bus namespace of the region.')
param namespaceId string

@description('Required. The megabytes that a queue of the namespace holds.')
param queueMegabytes int

@description('Required. Function app of the region.')
param appId string

@description('Required. The most instances that the app may scale out to.')
param instancesMax int

@description('Required. Every region: its name, the address of its app (url) and its storage account (storageId). Each watches the others, because a lost region tells nothing of itself.')
param apps { name: string, url: string, storageId: string }[]

@description('Required. Addresses that alerts are mailed to.')
@minLength(1)
param emails string[]

@description('Optional. Messages that may wait in a queue for a quarter of an hour before somebody is told.')
@minValue(1)
param backlogMax int = 10000

@description('Optional. Whether the record of the journal goes to this workspace, which then tells of sessions near their 20 GB.')
param hasJournalRecord bool = false

@description('Optional. The journal\'s account, if this region tells of it and of Azure\'s own health; empty: another one does.')
param journalId string = ''

@description('Optional. Whether partitions of the journal move their writes by themselves, of which this region tells.')
param partitionFailover bool = false

@description('Optional. The region in which the journal is usually written, by the name that its metrics call it; needed where partitions move.')
param writeRegion string = ''

@description('Optional. Tags put on every resource.')
param tags { *: string } = {}

var page = 'docs/runbook.md'
var peers = filter(apps, one => one.name != region)

// Each query gives rows with a TimeGenerated and a Value; what it says of ten minutes is held against the threshold, and
// `periods` is how many times in a row, five minutes apart, before somebody is told.
// The names of metrics are those of docs/telemetry.md, and `symptom` is a heading of the runbook. No query rests on a
// table of spans or logs: these are sampled, a host's logs with their spans, and metrics never are. Of a gauge the
// exporter gives a value and no maximum, so it is Sum / ItemCount.
var regionSymptoms = [
  {
    symptom: 'Nothing is heard of another region'
    severity: 1
    query: 'AppMetrics | where Name == "lockstep.region.silence" | project TimeGenerated, Value = Sum / ItemCount'
    aggregation: 'Maximum'
    threshold: 120
    periods: 1
  }
  {
    symptom: 'A feed or a timer is silent'
    severity: 1
    query: 'AppMetrics | where Name == "lockstep.silences" | project TimeGenerated, Value = Sum'
    aggregation: 'Total'
    threshold: 3
    periods: 1
  }
  {
    symptom: 'The journal\'s write region is lost'
    severity: 1
    query: 'AppMetrics | where Name == "lockstep.postponed" | project TimeGenerated, Value = Sum'
    aggregation: 'Total'
    threshold: 3
    periods: 1
  }
  {
    // The mean of what had an effect: one message that fails and pauses is in the error queue, and no slow queue.
    symptom: 'A full queue makes only a few messages a second'
    severity: 2
    query: 'AppMetrics | where Name == "lockstep.delivery.latency" and tostring(Properties.outcome) == "processed" | summarize Value = sum(Sum) / sum(ItemCount) by bin(TimeGenerated, 5m)'
    aggregation: 'Maximum'
    threshold: 300
    periods: 1
  }
  {
    symptom: 'Something needs attention'
    severity: 2
    query: 'AppMetrics | where Name == "lockstep.halts" | project TimeGenerated, Value = Sum'
    aggregation: 'Total'
    threshold: 0
    periods: 1
  }
  {
    symptom: 'Something needs attention'
    severity: 2
    query: 'AppMetrics | where Name == "lockstep.gap.age" | project TimeGenerated, Value = Sum / ItemCount'
    aggregation: 'Maximum'
    threshold: 600
    periods: 1
  }
  {
    symptom: 'Outputs are blocked'
    severity: 2
    query: 'AppMetrics | where Name == "lockstep.blocked.queues" | project TimeGenerated, Value = Sum / ItemCount'
    aggregation: 'Maximum'
    threshold: 0
    periods: 1
  }
  {
    symptom: 'Outputs are late'
    severity: 2
    query: 'AppMetrics | where Name == "lockstep.pending.age" | project TimeGenerated, Value = Sum / ItemCount'
    aggregation: 'Maximum'
    threshold: 300
    periods: 1
  }
  {
    symptom: 'Two applications share a task hub'
    severity: 2
    query: 'AppMetrics | where Name == "lockstep.strangers" | project TimeGenerated, Value = Sum'
    aggregation: 'Total'
    threshold: 0
    periods: 1
  }
  {
    symptom: 'The archive has stopped'
    severity: 2
    query: 'AppMetrics | where Name == "lockstep.unarchived" | project TimeGenerated, Value = Sum'
    aggregation: 'Total'
    threshold: 0
    periods: 1
  }
  {
    // A deployment loses owners for some minutes; for half an hour it is something else.
    symptom: 'A session does not move and is not halted'
    severity: 3
    query: 'AppMetrics | where Name == "lockstep.takeovers" | project TimeGenerated, Value = Sum'
    aggregation: 'Total'
    threshold: 0
    periods: 6
  }
  {
    symptom: 'Telemetry stops for the day'
    severity: 2
    query: '_LogOperation | where Category =~ "Ingestion" and Detail has "OverQuota" | project TimeGenerated, Value = 1'
    aggregation: 'Total'
    threshold: 0
    periods: 1
  }
]

// Cosmos DB writes rows for sessions of more than about 1 GB only. At 15 of 20 GB there is time left to act.
var journalSymptoms = [
  {
    symptom: 'A session nears its 20 GB'
    severity: 2
    query: 'CDBPartitionKeyStatistics | project TimeGenerated, Value = SizeKb'
    aggregation: 'Maximum'
    threshold: 15728640
    periods: 1
  }
]

var symptoms = concat(regionSymptoms, hasJournalRecord ? journalSymptoms : [])

var queues = ['lockstep', 'lockstep-out', 'lockstep-errors']

// What the platform itself counts; each is watched apart for every value of its dimension. One with `isRepeated` is told
// anew in every period in which it holds, where the others are told once and then again when they have ended.
var brokerSymptoms = [
  {
    symptom: 'Queues do not drain'
    severity: 2
    metric: 'ActiveMessages'
    aggregation: 'Average'
    threshold: backlogMax
    dimensions: [{ name: 'EntityName', operator: 'Include', values: ['lockstep', 'lockstep-out'] }]
  }
  {
    // At three quarters of what it holds. A queue that is full refuses what is sent to it.
    symptom: 'Queues do not drain'
    severity: 1
    metric: 'Size'
    aggregation: 'Average'
    threshold: queueMegabytes * 786432
    dimensions: [{ name: 'EntityName', operator: 'Include', values: queues }]
  }
  {
    // Reports stay in the queue, so what counts is what comes.
    symptom: 'Something is in the error queue'
    severity: 2
    metric: 'IncomingMessages'
    aggregation: 'Total'
    threshold: 0
    window: 'PT5M'
    isRepeated: true
    dimensions: [{ name: 'EntityName', operator: 'Include', values: ['lockstep-errors'] }]
  }
  {
    // The app takes those of its input queue and what expired in the error queue. What is there for the whole of an hour
    // stays until a person takes it.
    symptom: 'Messages were dead-lettered'
    severity: 2
    metric: 'DeadletteredMessages'
    aggregation: 'Minimum'
    threshold: 0
    window: 'PT1H'
    isRepeated: true
    dimensions: [{ name: 'EntityName', operator: 'Include', values: queues }]
  }
  {
    // Without a worker the host fails hundreds of deliveries a second; with one, a failing delivery pauses first.
    symptom: 'A region has no worker'
    severity: 1
    metric: 'AbandonMessage'
    aggregation: 'Total'
    threshold: 5000
    window: 'PT5M'
    dimensions: [{ name: 'EntityName', operator: 'Include', values: ['lockstep'] }]
  }
  {
    symptom: 'Azure refuses what the app asks'
    severity: 2
    metric: 'ThrottledRequests'
    aggregation: 'Total'
    threshold: 100
  }
  {
    symptom: 'Azure refuses what the app asks'
    severity: 2
    metric: 'ServerErrors'
    aggregation: 'Total'
    threshold: 100
  }
]

var appSymptoms = [
  {
    symptom: 'HTTP answers with errors'
    severity: 2
    metric: 'Http5xx'
    aggregation: 'Total'
    threshold: 20
  }
  {
    symptom: 'An app has as many instances as it may'
    severity: 2
    metric: 'InstanceCount'
    aggregation: 'Maximum'
    threshold: instancesMax - 1
  }
]

// The account's metrics come for each region that it is in. One that it has not told yet it does not have, so that there
// is one is not asked when the alert is made.
var accountSymptoms = [
  {
    symptom: 'Azure refuses what the app asks'
    severity: 2
    metric: 'TotalRequests'
    aggregation: 'Count'
    threshold: 1000
    dimensions: [{ name: 'StatusCode', operator: 'Include', values: ['429'] }]
  }
  {
    symptom: 'The journal\'s write region is lost'
    severity: 1
    metric: 'ServiceAvailability'
    aggregation: 'Average'
    operator: 'LessThan'
    threshold: 99
    window: 'PT1H'
  }
  {
    symptom: 'The journal\'s write region is lost'
    severity: 2
    metric: 'RegionFailover'
    aggregation: 'Count'
    threshold: 0
  }
]
// It counts for each region the partitions that are written there.
var partitionSymptoms = [
  {
    symptom: 'The journal\'s write region is lost'
    severity: 2
    metric: 'PartitionWriteGlobalStatus'
    aggregation: 'Maximum'
    threshold: 0
    dimensions: [{ name: 'Region', operator: 'Exclude', values: [writeRegion] }]
  }
]
var storageSymptom = {
  symptom: 'A region is down'
  severity: 1
  metric: 'Availability'
  aggregation: 'Average'
  operator: 'LessThan'
  threshold: 99
}

var usual = { operator: 'GreaterThan', window: 'PT15M', isRepeated: false, dimensions: [] }
var accountMetrics = concat(empty(journalId) ? [] : accountSymptoms, partitionFailover ? partitionSymptoms : [])
var counts = concat(
  map(brokerSymptoms, one => union(usual, one, { of: 'Microsoft.ServiceBus/namespaces', scope: namespaceId })),
  map(appSymptoms, one => union(usual, one, { of: 'Microsoft.Web/sites', scope: appId })),
  map(accountMetrics, one => union(usual, one, { of: 'Microsoft.DocumentDB/databaseAccounts', scope: journalId })),
  map(peers, peer => union(usual, storageSymptom, { of: 'Microsoft.Storage/storageAccounts', scope: peer.storageId }))
)

resource workspace 'Microsoft.OperationalInsights/workspaces@2025-07-01' existing = {
  name: workspaceName
}

resource mail 'Microsoft.Insights/actionGroups@2023-01-01' = {
  name: 'ag-lockstep-${region}'
  location: 'global'
  tags: tags
  properties: {
    groupShortName: region
    enabled: true
    emailReceivers: [
      for address in emails: {
        name: address
        emailAddress: address
        useCommonAlertSchema: true
      }
    ]
  }
}

resource told 'Microsoft.Insights/scheduledQueryRules@2026-03-01' = [
  for (one, index) in symptoms: {
    name: 'alert-lockstep-${region}-${index}'
    location: location
    tags: tags
    kind: 'LogAlert'
    properties: {
      displayName: 'Lockstep ${region}: ${one.symptom}'
      description: 'See "${one.symptom}" in ${page}.'
      severity: one.severity
      enabled: true
      scopes: [workspace.id]
      evaluationFrequency: 'PT5M'
      windowSize: 'PT10M'
      // A table is there only when its first row has come.
      skipQueryValidation: true
      autoMitigate: true
      criteria: {
        allOf: [
          {
            query: one.query
            timeAggregation: one.aggregation
            metricMeasureColumn: 'Value'
            operator: 'GreaterThan'
            threshold: one.threshold
            failingPeriods: {
              numberOfEvaluationPeriods: one.periods
              minFailingPeriodsToAlert: one.periods
            }
          }
        ]
      }
      actions: { actionGroups: [mail.id] }
    }
  }
]

resource counted 'Microsoft.Insights/metricAlerts@2026-01-01' = [
  for (one, index) in counts: {
    name: 'alert-lockstep-${region}-count-${index}'
    location: 'global'
    tags: tags
    properties: {
      description: 'See "${one.symptom}" in ${page}: ${one.metric} of ${one.of}.'
      severity: one.severity
      enabled: true
      scopes: [one.scope]
      evaluationFrequency: one.window == 'PT1H' ? 'PT1H' : 'PT5M'
      windowSize: one.window
      autoMitigate: !one.isRepeated
      criteria: {
        'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
        allOf: [
          {
            name: 'counted'
            criterionType: 'StaticThresholdCriterion'
            metricNamespace: one.of
            metricName: one.metric
            skipMetricValidation: true
            timeAggregation: one.aggregation
            operator: one.operator
            threshold: one.threshold
            dimensions: one.dimensions
          }
        ]
      }
      actions: [
        { actionGroupId: mail.id }
      ]
    }
  }
]

// The other regions are asked from three places that lie in none of the default ones; one of them may fail by itself.
resource asked 'Microsoft.Insights/webtests@2022-06-15' = [
  for peer in peers: {
    name: 'health-lockstep-${peer.name}-by-${region}'
    location: location
    tags: union(tags, { 'hidden-link:${insightsId}': 'Resource' })
    kind: 'standard'
    properties: {
      SyntheticMonitorId: 'health-lockstep-${peer.name}-by-${region}'
      Name: 'health of ${peer.name}'
      Kind: 'standard'
      Enabled: true
      Frequency: 300
      Timeout: 30
      RetryEnabled: true
      Locations: [
        { Id: 'us-il-ch1-azr' }
        { Id: 'us-tx-sn1-azr' }
        { Id: 'emea-nl-ams-azr' }
      ]
      Request: {
        RequestUrl: '${peer.url}/api/health'
        HttpVerb: 'GET'
      }
      ValidationRules: {
        ExpectedHttpStatusCode: 200
        SSLCheck: true
        SSLCertRemainingLifetimeCheck: 7
      }
    }
  }
]

resource down 'Microsoft.Insights/metricAlerts@2026-01-01' = [
  for (peer, index) in peers: {
    name: 'alert-lockstep-${region}-down-${peer.name}'
    location: 'global'
    tags: union(tags, { 'hidden-link:${insightsId}': 'Resource', 'hidden-link:${asked[index].id}': 'Resource' })
    properties: {
      description: 'See "A region is down" in ${page}: ${peer.name} does not answer.'
      severity: 1
      enabled: true
      scopes: [asked[index].id, insightsId]
      evaluationFrequency: 'PT1M'
      windowSize: 'PT5M'
      autoMitigate: true
      criteria: {
        'odata.type': 'Microsoft.Azure.Monitor.WebtestLocationAvailabilityCriteria'
        webTestId: asked[index].id
        componentId: insightsId
        failedLocationCount: 2
      }
      actions: [
        { actionGroupId: mail.id }
      ]
    }
  }
]

// What Microsoft itself says of its services, and of the resources of this group.
resource service 'Microsoft.Insights/activityLogAlerts@2026-01-01' = if (!empty(journalId)) {
  name: 'alert-lockstep-service'
  location: 'global'
  tags: tags
  properties: {
    description: 'See "A region is down" in ${page}: Microsoft tells of an incident.'
    enabled: true
    scopes: [subscription().id]
    condition: {
      allOf: [
        { field: 'category', equals: 'ServiceHealth' }
        { field: 'properties.incidentType', equals: 'Incident' }
        {
          field: 'properties.impactedServices[*].ServiceName'
          containsAny: ['Azure Cosmos DB', 'Service Bus', 'Azure Functions', 'App Service', 'Storage', 'Azure Monitor']
        }
      ]
    }
    actions: {
      actionGroups: [
        { actionGroupId: mail.id }
      ]
    }
  }
}

resource ill 'Microsoft.Insights/activityLogAlerts@2026-01-01' = if (!empty(journalId)) {
  name: 'alert-lockstep-resource'
  location: 'global'
  tags: tags
  properties: {
    description: 'See "A region is down" in ${page}: Microsoft tells that a resource cannot be reached.'
    enabled: true
    scopes: [resourceGroup().id]
    condition: {
      allOf: [
        { field: 'category', equals: 'ResourceHealth' }
        { field: 'properties.currentHealthStatus', equals: 'Unavailable' }
        { field: 'properties.cause', equals: 'PlatformInitiated' }
      ]
    }
    actions: {
      actionGroups: [
        { actionGroupId: mail.id }
      ]
    }
  }
}

var charts = [
  for (one, index) in symptoms: {
    type: 3
    name: '${index}'
    content: {
      version: 'KqlItem/1.0'
      title: one.symptom
      query: '${one.query} | summarize Value = max(Value) by bin(TimeGenerated, 5m) | render timechart'
      size: 1
      timeContext: { durationMs: 86400000 }
      queryType: 0
      resourceType: 'microsoft.operationalinsights/workspaces'
      crossComponentResources: [workspace.id]
    }
  }
]

resource workbook 'Microsoft.Insights/workbooks@2023-06-01' = {
  name: guid(workspace.id, 'lockstep')
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'Lockstep ${region}'
    category: 'workbook'
    sourceId: workspace.id
    serializedData: string({
      version: 'Notebook/1.0'
      items: charts
    })
  }
}
