metadata description = 'The journal: one Cosmos account with a single write region, strong consistency and at least three regions.'

@description('Required. Name of the Cosmos account; unique in the world.')
param accountName string

@description('Required. Where Azure keeps the record of the account. It never changes, whichever location takes the writes.')
param location string

@description('Required. Azure locations, the write region first, then in the order of fail-over.')
@minLength(3)
@maxLength(5)
param locations string[]

@description('Required. Ceiling of the journal container in request units per second.')
@minValue(1000)
param throughputMax int

@description('Optional. Whether each region spreads the journal over its availability zones. It costs more throughput; without it, losing a zone may be losing a region, which the journal survives.')
param zoneRedundant bool = false

@description('Optional. How far back the journal can be restored to any second: seven days, or thirty for a price.')
@allowed(['Continuous7Days', 'Continuous30Days'])
param backupTier string = 'Continuous7Days'

@description('Optional. Whether deleting the account, or a container in it, is refused: what is in no other place would be gone with it.')
param isLocked bool = true

@description('Optional. Whether the account is reached through private endpoints alone.')
param isPrivate bool = false

@description('Optional. Whether each partition whose write region fails moves its writes by itself (per-partition automatic failover), which belongs to a tier with a price; without it the whole account fails over, when Microsoft decides so.')
param partitionFailover bool = true

@description('Optional. Container for the ledgers of producers outside the apps; empty: there is none.')
param ledgersName string = ''

@description('Optional. Tags put on the account.')
param tags { *: string } = {}

@export()
var databaseName = 'lockstep'
@export()
var journalName = 'journal'
@export()
var leasesName = 'leases'

resource account 'Microsoft.DocumentDB/databaseAccounts@2025-10-15' = {
  name: accountName
  location: location
  tags: tags
  kind: 'GlobalDocumentDB'
  properties: {
    databaseAccountOfferType: 'Standard'
    // Strong: a fail-over forgets no entry. It excludes several write regions.
    consistencyPolicy: { defaultConsistencyLevel: 'Strong' }
    enableMultipleWriteLocations: false
    // What is left to the service where partitions do not move by themselves, and for the account as a whole.
    enableAutomaticFailover: true
    // The list is the account's whole list.
    capabilities: partitionFailover ? [{ name: 'EnablePerPartitionAutomaticFailover' }] : []
    locations: [
      for (place, priority) in locations: {
        locationName: place
        failoverPriority: priority
        isZoneRedundant: zoneRedundant
      }
    ]
    backupPolicy: {
      type: 'Continuous'
      continuousModeProperties: { tier: backupTier }
    }
    disableLocalAuth: true
    disableKeyBasedMetadataWriteAccess: true
    minimalTlsVersion: 'Tls12'
    publicNetworkAccess: isPrivate ? 'Disabled' : 'Enabled'
  }
}

resource database 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases@2025-10-15' = {
  parent: account
  name: databaseName
  properties: {
    resource: { id: databaseName }
  }
}

// Two containers that are alike, since the same code reads and writes them: a role reaches a container, so whoever may
// write ledgers in one of their own may not write the journal.
resource sessions 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2025-10-15' = [
  for name in (empty(ledgersName) ? [journalName] : [journalName, ledgersName]): {
    parent: database
    name: name
    properties: {
      resource: {
        id: name
        // One session, one logical partition: one transactional batch covers all of it.
        partitionKey: {
          kind: 'Hash'
          version: 2
          paths: ['/session']
        }
        // Time to live is on and nothing expires unless the document itself says so.
        defaultTtl: -1
        // Every indexed path is paid for on every write; only these are ever queried.
        indexingPolicy: {
          indexingMode: 'consistent'
          automatic: true
          includedPaths: [
            { path: '/pending/[]/?' }
            { path: '/blocked/[]/?' }
            { path: '/faulted/?' }
            { path: '/claimed/?' }
            { path: '/waiting/?' }
            { path: '/milestone/?' }
            { path: '/listed/?' }
            { path: '/saga/?' }
            { path: '/saga_in/?' }
            { path: '/saga_due/?' }
            // A report of a rejected delivery that nobody has ended.
            { path: '/rejected/?' }
            // Entries are found by the ids of their messages.
            { path: '/identities/[]/id/?' }
          ]
          excludedPaths: [
            { path: '/*' }
          ]
        }
      }
      options: {
        autoscaleSettings: { maxThroughput: throughputMax }
      }
    }
  }
]

// Declared here because the change-feed trigger cannot create it with an identity.
resource leases 'Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers@2025-10-15' = {
  parent: database
  name: leasesName
  properties: {
    resource: {
      id: leasesName
      partitionKey: {
        kind: 'Hash'
        version: 2
        paths: ['/id']
      }
    }
    // Two regions take about 20 RU/s of it. Scaled, its floor costs less than 400 that stay.
    options: {
      autoscaleSettings: { maxThroughput: 1000 }
    }
  }
}

resource lock 'Microsoft.Authorization/locks@2020-05-01' = if (isLocked) {
  scope: account
  name: 'keep-the-journal'
  properties: {
    level: 'CanNotDelete'
    notes: 'The journal is in no other place. docs/deploy.md says how it is deleted on purpose.'
  }
}

@description('Resource id of the lock; empty if there is none.')
output lockId string = isLocked ? '${account.id}/providers/Microsoft.Authorization/locks/keep-the-journal' : ''

@description('Region that takes the writes now, by the name that Cosmos DB and its metrics call it.')
output writeRegion string = account.properties.writeLocations[0].locationName

@description('Endpoint clients connect to.')
output endpoint string = account.properties.documentEndpoint
