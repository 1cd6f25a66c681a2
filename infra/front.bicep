metadata description = 'One address for the HTTP functions of all regions: Azure Front Door, which asks each for its health.'

@description('Required. Suffix that makes names unique in the world.')
param token string

@description('Required. Each region\'s name, and the host name of its app.')
param origins { name: string, host: string }[]

@description('Optional. Calls that one address may make in a minute; what comes beyond is answered by 429. Front Door counts in each of its places, so it is about this number.')
@minValue(10)
param callsMax int = 6000

@description('Optional. Tags put on every resource.')
param tags { *: string } = {}

resource profile 'Microsoft.Cdn/profiles@2025-06-01' = {
  name: 'afd-lockstep-${token}'
  location: 'global'
  tags: tags
  sku: { name: 'Standard_AzureFrontDoor' }
  // A decision on the operations page may take up to a minute.
  properties: { originResponseTimeoutSeconds: 90 }
}

resource endpoint 'Microsoft.Cdn/profiles/afdEndpoints@2025-06-01' = {
  parent: profile
  name: 'lockstep-${token}'
  location: 'global'
  tags: tags
  properties: { enabledState: 'Enabled' }
}

resource regions 'Microsoft.Cdn/profiles/originGroups@2025-06-01' = {
  parent: profile
  name: 'regions'
  properties: {
    loadBalancingSettings: {
      sampleSize: 4
      successfulSamplesRequired: 2
      // The nearest region that works: every region takes every message.
      additionalLatencyInMilliseconds: 0
    }
    // It answers within two seconds, with 503 where the journal cannot be read.
    healthProbeSettings: {
      probePath: '/api/health'
      probeRequestType: 'GET'
      probeProtocol: 'Https'
      probeIntervalInSeconds: 30
    }
    sessionAffinityState: 'Disabled'
  }
}

resource origin 'Microsoft.Cdn/profiles/originGroups/origins@2025-06-01' = [
  for one in origins: {
    parent: regions
    name: one.name
    properties: {
      hostName: one.host
      originHostHeader: one.host
      httpsPort: 443
      enforceCertificateNameCheck: true
    }
  }
]

resource route 'Microsoft.Cdn/profiles/afdEndpoints/routes@2025-06-01' = {
  parent: endpoint
  name: 'api'
  properties: {
    originGroup: { id: regions.id }
    patternsToMatch: ['/api/*']
    supportedProtocols: ['Https']
    forwardingProtocol: 'HttpsOnly'
    httpsRedirect: 'Disabled'
    linkToDefaultDomain: 'Enabled'
  }
  // A route to a group without origins is refused.
  dependsOn: [origin]
}

// Standard takes rules of one's own and refuses Microsoft's managed ones. A rule needs a condition: this address is nobody's.
resource limits 'Microsoft.Network/FrontDoorWebApplicationFirewallPolicies@2025-11-01' = {
  name: 'lockstep${token}'
  location: 'global'
  tags: tags
  sku: { name: 'Standard_AzureFrontDoor' }
  properties: {
    policySettings: {
      enabledState: 'Enabled'
      mode: 'Prevention'
      customBlockResponseStatusCode: 429
    }
    customRules: {
      rules: [
        {
          name: 'calls'
          priority: 1
          ruleType: 'RateLimitRule'
          rateLimitDurationInMinutes: 1
          rateLimitThreshold: callsMax
          matchConditions: [
            { matchVariable: 'SocketAddr', operator: 'IPMatch', negateCondition: true, matchValue: ['192.0.2.0/24'] }
          ]
          action: 'Block'
        }
      ]
    }
  }
}

resource guard 'Microsoft.Cdn/profiles/securityPolicies@2025-06-01' = {
  parent: profile
  name: 'limits'
  properties: {
    parameters: {
      type: 'WebApplicationFirewall'
      wafPolicy: { id: limits.id }
      associations: [
        { domains: [{ id: endpoint.id }], patternsToMatch: ['/*'] }
      ]
    }
  }
}

@description('What Front Door sends as X-Azure-FDID: every profile comes from the same addresses.')
output id string = profile.properties.frontDoorId

@description('The address of all regions.')
output url string = 'https://${endpoint.properties.hostName}'
