metadata description = 'What is watched in one region: an alert for each symptom of docs/runbook.md, and a workbook that shows the same.'

@description('Required. Name of the region.')
param region string

@description('Required. Azure location of the region.')
param location string

@description('Required. Workspace that the region\'s logs and metrics are kept in.')
param workspaceId string

@description('Required. Service Bus namespace of the region.')
param namespaceId string

@description('Required. Addresses that alerts are mailed to.')
@minLength(1)
param emails array

@description('Optional. Messages that may wait in the queue for a quarter of an hour before somebody is told.')
@minValue(1)
param backlogMax int = 10000

@description('Optional. Whether the record of the journal goes to this workspace, which then tells of sessions near their 20 GB.')
param hasJournalRecord bool = false

@description('Optional. The journal\'s account, if its partitions move their writes by themselves; empty: they do not.')
param journalId string = ''

@description('Optional. The region in which the journal is usually written, by the name that its metrics call it.')
param writeRegion string = ''

@description('Optional. Tags put on every resource.')
param tags object = {}

var page = 'docs/runbook.md'

// Each query gives rows with a TimeGenerated and a Value; what it says of ten minutes is held against the threshold.
// The names of metrics are those of docs/telemetry.md, and `symptom` is a heading of the runbook.
var regionSymptoms = [
  {
    symptom: 'A region is down'
    severity: 1
    query: 'AppRequests | where Name has "sweep" | summarize Value = count(), TimeGenerated = now()'
    aggregation: 'Maximum'
    operator: 'LessThan'
    threshold: 1
  }
  {
    symptom: 'Nothing is heard of another region'
    severity: 1
    query: 'AppMetrics | where Name == "lockstep.region.silence" | project TimeGenerated, Value = Max'
    aggregation: 'Maximum'
    operator: 'GreaterThan'
    threshold: 120
  }
  {
    symptom: 'A region has no worker'
    severity: 1
    query: 'AppExceptions | where InnermostMessage has "initialized language workers" | project TimeGenerated, Value = 1'
    aggregation: 'Total'
    operator: 'GreaterThan'
    threshold: 0
  }
  {
    symptom: 'A feed or a timer is silent'
    severity: 1
    query: 'AppTraces | where Message has "nothing was heard of" and Message !has "heard of region" | project TimeGenerated, Value = 1'
    aggregation: 'Total'
    operator: 'GreaterThan'
    threshold: 3
  }
  {
    symptom: 'The journal\'s write region is lost'
    severity: 1
    query: 'AppTraces | where Message has "sweep postponed" or Message has "could not be recorded" | project TimeGenerated, Value = 1'
    aggregation: 'Total'
    operator: 'GreaterThan'
    threshold: 3
  }
  {
    symptom: 'A full queue makes only a few messages a second'
    severity: 2
    query: 'AppMetrics | where Name == "lockstep.delivery.latency" | project TimeGenerated, Value = Max'
    aggregation: 'Maximum'
    operator: 'GreaterThan'
    threshold: 300
  }
  {
    symptom: 'Something stands still'
    severity: 2
    query: 'AppMetrics | where Name == "lockstep.halts" | project TimeGenerated, Value = Sum'
    aggregation: 'Total'
    operator: 'GreaterThan'
    threshold: 0
  }
  {
    symptom: 'Outputs are blocked'
    severity: 2
    query: 'AppMetrics | where Name == "lockstep.unsent" | project TimeGenerated, Value = Sum'
    aggregation: 'Total'
    operator: 'GreaterThan'
    threshold: 0
  }
  {
    symptom: 'Outputs are late'
    severity: 2
    query: 'AppMetrics | where Name == "lockstep.pending.age" | project TimeGenerated, Value = Max'
    aggregation: 'Maximum'
    operator: 'GreaterThan'
    threshold: 300
  }
  {
    symptom: 'Two applications share a task hub'
    severity: 2
    query: 'AppTraces | where Message has "the saga\'s app reads queue" | project TimeGenerated, Value = 1'
    aggregation: 'Total'
    operator: 'GreaterThan'
    threshold: 0
  }
  {
    symptom: 'The archive has stopped'
    severity: 2
    query: 'AppTraces | where Message has "nothing was archived" | project TimeGenerated, Value = 1'
    aggregation: 'Total'
    operator: 'GreaterThan'
    threshold: 0
  }
  {
    symptom: 'A session does not move and is not halted'
    severity: 3
    query: 'AppMetrics | where Name == "lockstep.takeovers" | project TimeGenerated, Value = Sum'
    aggregation: 'Total'
    operator: 'GreaterThan'
    threshold: 0
  }
]

// Cosmos DB writes rows for sessions of more than about 1 GB only. At 15 of 20 GB there is time left to act.
var journalSymptoms = [
  {
    symptom: 'A session nears its 20 GB'
    severity: 2
    query: 'CDBPartitionKeyStatistics | project TimeGenerated, Value = SizeKb'
    aggregation: 'Maximum'
    operator: 'GreaterThan'
    threshold: 15728640
  }
]

var symptoms = concat(regionSymptoms, hasJournalRecord ? journalSymptoms : [])

// What the broker itself counts, by queue.
var brokerSymptoms = [
  {
    symptom: 'Queues do not drain'
    severity: 2
    metric: 'ActiveMessages'
    queue: 'lockstep'
    threshold: backlogMax
  }
  {
    symptom: 'Something is in the error queue'
    severity: 2
    metric: 'ActiveMessages'
    queue: 'lockstep-errors'
    threshold: 0
  }
  {
    symptom: 'Messages were dead-lettered'
    severity: 2
    metric: 'DeadletteredMessages'
    queue: 'lockstep'
    threshold: 0
  }
]

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

resource told 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = [
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
      scopes: [workspaceId]
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
            operator: one.operator
            threshold: one.threshold
            failingPeriods: {
              numberOfEvaluationPeriods: 1
              minFailingPeriodsToAlert: 1
            }
          }
        ]
      }
      actions: { actionGroups: [mail.id] }
    }
  }
]

resource counted 'Microsoft.Insights/metricAlerts@2018-03-01' = [
  for (one, index) in brokerSymptoms: {
    name: 'alert-lockstep-${region}-broker-${index}'
    location: 'global'
    tags: tags
    properties: {
      description: 'See "${one.symptom}" in ${page}.'
      severity: one.severity
      enabled: true
      scopes: [namespaceId]
      evaluationFrequency: 'PT5M'
      windowSize: 'PT15M'
      autoMitigate: true
      criteria: {
        'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
        allOf: [
          {
            name: 'counted'
            criterionType: 'StaticThresholdCriterion'
            metricNamespace: 'Microsoft.ServiceBus/namespaces'
            metricName: one.metric
            timeAggregation: 'Average'
            operator: 'GreaterThan'
            threshold: one.threshold
            dimensions: [
              {
                name: 'EntityName'
                operator: 'Include'
                values: [one.queue]
              }
            ]
          }
        ]
      }
      actions: [
        { actionGroupId: mail.id }
      ]
    }
  }
]

// The metric counts for each region the partitions that are written there. An account that has not told it yet has no
// such metric, so that there is one is not asked when the alert is made.
resource moved 'Microsoft.Insights/metricAlerts@2018-03-01' = if (!empty(journalId)) {
  name: 'alert-lockstep-${region}-journal'
  location: 'global'
  tags: tags
  properties: {
    description: 'See "The journal\'s write region is lost" in ${page}: partitions of the journal are written outside ${writeRegion}.'
    severity: 2
    enabled: true
    scopes: [journalId]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT15M'
    autoMitigate: true
    criteria: {
      'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
      allOf: [
        {
          name: 'moved'
          criterionType: 'StaticThresholdCriterion'
          metricNamespace: 'Microsoft.DocumentDB/databaseAccounts'
          metricName: 'PartitionWriteGlobalStatus'
          skipMetricValidation: true
          timeAggregation: 'Maximum'
          operator: 'GreaterThan'
          threshold: 0
          dimensions: [
            {
              name: 'Region'
              operator: 'Exclude'
              values: [writeRegion]
            }
          ]
        }
      ]
    }
    actions: [
      { actionGroupId: mail.id }
    ]
  }
}

var charts = [
  for one in symptoms: {
    type: 3
    name: one.symptom
    content: {
      version: 'KqlItem/1.0'
      title: one.symptom
      query: '${one.query} | summarize Value = max(Value) by bin(TimeGenerated, 5m) | render timechart'
      size: 1
      timeContext: { durationMs: 86400000 }
      queryType: 0
      resourceType: 'microsoft.operationalinsights/workspaces'
      crossComponentResources: [workspaceId]
    }
  }
]

resource workbook 'Microsoft.Insights/workbooks@2023-06-01' = {
  name: guid(workspaceId, 'lockstep')
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'Lockstep ${region}'
    category: 'workbook'
    sourceId: workspaceId
    serializedData: string({
      version: 'Notebook/1.0'
      items: charts
    })
  }
}
