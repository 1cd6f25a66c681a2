metadata description = 'Who may write the journal, and who may query it. These roles are the account\'s own, not Azure\'s.'

@description('Required. Cosmos account of the journal.')
param accountName string

@description('Required. Principals of the apps.')
param writers string[]

@description('Optional. Object id of the group whose members may query the journal; empty: nobody.')
param readers string = ''

@description('Optional. Object ids of producers outside the apps, which write their ledgers and nothing else.')
param producers string[] = []

@description('Optional. Path of the container of their ledgers below the account; needed with producers.')
param ledgersPath string = ''

@description('Optional. Workspace that the account\'s record goes to: who changed it, and which sessions take most of the 20 GB that a session may have; empty: nowhere.')
param workspaceId string = ''

@description('Optional. Whether the account writes a record.')
param hasRecord bool = false

// Cosmos DB Built-in Data Contributor: read and write documents; it cannot create or drop a container.
var contributor = '00000000-0000-0000-0000-000000000002'

// Cosmos DB Built-in Data Reader: query documents and read the change feed.
var reader = '00000000-0000-0000-0000-000000000001'

resource account 'Microsoft.DocumentDB/databaseAccounts@2025-10-15' existing = {
  name: accountName
}

// One at a time: an account refuses a role assignment while another one is being made. The account holds this
// application's database and nothing else, so the account is the scope.
@batchSize(1)
resource write 'Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments@2025-10-15' = [
  for principalId in writers: {
    parent: account
    name: guid(account.id, principalId, contributor)
    properties: {
      principalId: principalId
      roleDefinitionId: '${account.id}/sqlRoleDefinitions/${contributor}'
      scope: account.id
    }
  }
]

resource look 'Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments@2025-10-15' = if (!empty(readers)) {
  parent: account
  name: guid(account.id, readers, reader)
  properties: {
    principalId: readers
    roleDefinitionId: '${account.id}/sqlRoleDefinitions/${reader}'
    scope: account.id
  }
  dependsOn: [write]
}

// One at a time as well. What else lies in the account, the journal above all, these roles do not reach.
@batchSize(1)
resource publish 'Microsoft.DocumentDB/databaseAccounts/sqlRoleAssignments@2025-10-15' = [
  for principalId in producers: {
    parent: account
    name: guid(account.id, principalId, contributor, ledgersPath)
    properties: {
      principalId: principalId
      roleDefinitionId: '${account.id}/sqlRoleDefinitions/${contributor}'
      scope: '${account.id}${ledgersPath}'
    }
    dependsOn: [write, look]
  }
]

#disable-next-line use-recent-api-versions // the newer one is of 2016
resource record 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = if (hasRecord) {
  scope: account
  name: 'record'
  properties: {
    workspaceId: workspaceId
    // A table for each category, which the alert near 20 GB asks; the default is one table for all of them.
    logAnalyticsDestinationType: 'Dedicated'
    logs: [
      { category: 'ControlPlaneRequests', enabled: true }
      { category: 'PartitionKeyStatistics', enabled: true }
    ]
  }
}
