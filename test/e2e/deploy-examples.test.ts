import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { parse, parseAllDocuments } from 'yaml'
import { SETTING_OPTIONS } from '../../lib/config/setting-options.ts'
import { findCheck, isInstalled } from '../docs/checks.ts'

const DEPLOY = fileURLToPath(new URL('../../examples/deploy', import.meta.url))
const KUBERNETES = join(DEPLOY, 'kubernetes')
const read = (...path: string[]): string => readFileSync(join(DEPLOY, ...path), 'utf8')
const manifests = readdirSync(KUBERNETES).filter(name => name.endsWith('.yaml') && name !== 'kustomization.yaml')
const known = new Set(Object.values(SETTING_OPTIONS).flatMap(({ env }) => [...env]))

/** Variables of the gateway in a file. */
function variablesOf(text: string): string[] {
  return [...new Set(text.match(/\bFN_[A-Z_]+\b/g))]
}

t.test('[docs.8] every manifest is YAML and part of the base', async t => {
  const { resources } = parse(read('kubernetes', 'kustomization.yaml')) as { resources: string[] }
  t.same([...resources].sort(), manifests.sort())
  for (const name of manifests) {
    const documents = parseAllDocuments(read('kubernetes', name))
    for (const document of documents) t.same(document.errors, [], name)
  }
})

t.test('[docs.8] each FN_ variable is a setting', async t => {
  for (const name of manifests)
    for (const variable of variablesOf(read('kubernetes', name))) t.ok(known.has(variable), `${name}: ${variable}`)
})

t.test('[docs.8] ports and probes are those of the image', async t => {
  const deployment = parse(read('kubernetes', 'deployment.yaml'))
  const { spec } = deployment.spec.template
  const [container] = spec.containers
  const [port] = container.ports
  t.match(readFileSync(join(DEPLOY, '../../Dockerfile'), 'utf8'), new RegExp(`^EXPOSE ${port.containerPort}$`, 'm'))
  const paths = { startupProbe: 'ready=1', readinessProbe: 'ready=1', livenessProbe: 'live=1' }
  for (const [probe, query] of Object.entries(paths))
    t.same(container[probe].httpGet, { path: `/_fn/health?${query}`, port: port.name }, probe)
  t.equal(parse(read('kubernetes', 'service.yaml')).spec.ports[0].targetPort, port.name)
  const { data } = parse(read('kubernetes', 'config-map.yaml'))
  const stopSeconds = container.lifecycle.preStop.sleep.seconds + Number(data.FN_SHUTDOWN_TIMEOUT)
  t.ok(spec.terminationGracePeriodSeconds > stopSeconds, 'the grace period is longer than the stop')
})

t.test('[docs.8] budget and network policy select the pods of the base', async t => {
  const { labels } = parse(read('kubernetes', 'kustomization.yaml'))
  t.same(parse(read('kubernetes', 'pod-disruption-budget.yaml')).spec.selector.matchLabels, labels[0].pairs)
  t.same(parse(read('kubernetes', 'network-policy.yaml')).spec.podSelector.matchLabels, labels[0].pairs)
})

const hasValidator = spawnSync('kubernetes-validate', ['--version']).error === undefined
const skip = hasValidator ? false : 'kubernetes-validate is not installed (pip install kubernetes-validate)'

t.test('[docs.8] manifests are valid by the schemas of Kubernetes', { skip }, async t => {
  // The base adds the selector of the Deployment.
  const kustomized = spawnSync('kubectl', ['kustomize', KUBERNETES], { encoding: 'utf8' })
  const texts =
    kustomized.status === 0
      ? [kustomized.stdout]
      : manifests.filter(name => name !== 'deployment.yaml').map(name => read('kubernetes', name))
  if (kustomized.status !== 0) t.comment('kubectl is not installed: the Deployment is not checked')
  for (const input of texts) {
    const { status, stdout, stderr } = spawnSync('kubernetes-validate', ['--strict', '-'], { input, encoding: 'utf8' })
    t.equal(status, 0, stdout + stderr)
  }
})

t.test('[docs.9] the Compose file has a gateway for each upstream of nginx, and known variables', async t => {
  const { services } = parse(read('compose', 'compose.yaml'))
  const upstreams = [...read('compose', 'nginx.conf').matchAll(/server (\S+):8080;/g)].map(([, name]) => name)
  t.same(
    Object.keys(services).filter(name => name.startsWith('gateway-')),
    upstreams,
  )
  for (const name of upstreams) {
    const { environment, stop_grace_period: grace } = services[name!]
    for (const variable of Object.keys(environment)) t.ok(known.has(variable), variable)
    t.ok(Number.parseInt(grace, 10) > Number(environment.FN_SHUTDOWN_TIMEOUT))
  }
})

t.test('[docs.9] nginx reads its file', { skip: isInstalled('nginx') ? false : 'nginx is not installed' }, async t => {
  t.equal(findCheck('nginx')!(read('compose', 'nginx.conf').replaceAll(/gateway-\d/g, '127.0.0.1')), null)
})
