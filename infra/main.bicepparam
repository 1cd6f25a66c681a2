// What an environment says of main.bicep: azd reads it from variables (`azd env set NAME value`); all else is its default.
using 'main.bicep'

var addresses = readEnvironmentVariable('LOCKSTEP_EMAILS', '')

param environmentName = readEnvironmentVariable('AZURE_ENV_NAME')
param location = readEnvironmentVariable('AZURE_LOCATION')
param emails = empty(addresses)
  ? fail('Nobody would be told of a lost region. Run `azd env set LOCKSTEP_EMAILS ADDRESS,ADDRESS`, or with `none` for a trial.')
  : addresses
param primary = readEnvironmentVariable('LOCKSTEP_PRIMARY', '')
param journalAccount = readEnvironmentVariable('LOCKSTEP_JOURNAL_ACCOUNT', '')
param journalAccountLocation = readEnvironmentVariable('LOCKSTEP_JOURNAL_ACCOUNT_LOCATION', '')
param serviceBusSku = readEnvironmentVariable('LOCKSTEP_SERVICE_BUS_SKU', 'Standard')
param noticeUrl = readEnvironmentVariable('LOCKSTEP_NOTICE_URL', '')
param docsUrl = readEnvironmentVariable('LOCKSTEP_DOCS_URL', '')
param replacedRegions = readEnvironmentVariable('LOCKSTEP_REGIONS_REPLACED', '')
param replyQueues = readEnvironmentVariable('LOCKSTEP_REPLY_QUEUES', '')
param ledgersName = readEnvironmentVariable('LOCKSTEP_LEDGERS', '')
param authentication = readEnvironmentVariable('LOCKSTEP_AUTHENTICATION', 'keys')
param clientId = readEnvironmentVariable('LOCKSTEP_CLIENT_ID', '')
param otlpEndpoint = readEnvironmentVariable('OTEL_EXPORTER_OTLP_ENDPOINT', '')
param durableBackend = readEnvironmentVariable('LOCKSTEP_DURABLE', 'storage')
param spanRatio = readEnvironmentVariable('LOCKSTEP_SPAN_RATIO', '0.05')
param directCallers = readEnvironmentVariable('LOCKSTEP_DIRECT_CALLERS', '')
