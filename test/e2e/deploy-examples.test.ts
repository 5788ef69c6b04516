import { spawnSync } from 'node:child_process'
import { appendFileSync, cpSync, existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Ajv } from 'ajv'
import t from 'tap'
import { parse, parseAllDocuments } from 'yaml'
import { SETTING_OPTIONS } from '../../lib/config/setting-options.ts'
import { findCheck, isInstalled } from '../docs/checks.ts'
import { makeTree } from '../helpers/tree.ts'
import { findClusterPrograms, startCluster } from '../kubernetes.ts'

const DEPLOY = fileURLToPath(new URL('../../examples/deploy', import.meta.url))
const LIB = fileURLToPath(new URL('../../lib', import.meta.url))
const KUBERNETES = join(DEPLOY, 'kubernetes')
const CHART = join(DEPLOY, 'helm/fngw')
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

const CACHE = fileURLToPath(new URL('../../node_modules/.cache/deploy-tools', import.meta.url))
const HELM = isInstalled('helm') ? 'helm' : join(CACHE, 'bin/helm')
const VALIDATOR = isInstalled('kubernetes-validate')
  ? 'kubernetes-validate'
  : join(CACHE, 'venv/bin/kubernetes-validate')

const COMPOSE = isInstalled('podman-compose') ? 'podman-compose' : join(CACHE, 'venv/bin/podman-compose')

/** @returns false, or which tool is missing */
function withoutTools(...programs: string[]): false | string {
  const missing = programs.find(program => !existsSync(program) && !isInstalled(program))
  if (missing === undefined) return false
  return `${basename(missing)} is not installed (${missing === 'kubectl' ? 'kubernetes.io/docs/tasks/tools' : 'npm run test:deploy installs it'})`
}

function run(program: string, ...args: string[]): { status: number | null; output: string } {
  const { status, stdout, stderr } = spawnSync(program, args, { encoding: 'utf8' })
  return { status, output: stdout + stderr }
}

interface Manifest {
  kind: string
  apiVersion: string
  metadata: { name: string; namespace?: string }
  // biome-ignore lint/suspicious/noExplicitAny: of any kind.
  spec: any
  data: Record<string, string>
}

function toManifests(text: string): Map<string, Manifest> {
  const all = parseAllDocuments(text).map(document => document.toJS() as Manifest)
  return new Map(all.filter(one => one !== null).map(one => [one.kind, one]))
}

/** @param values - such as `image.tag=2` */
function renderChart(...values: string[]): { status: number | null; output: string } {
  const settings = values.flatMap(value => ['--set', value])
  return run(HELM, 'template', 'functions', CHART, '--namespace', 'functions', '--kube-version', '1.30.0', ...settings)
}

/** @param component - a folder of the base that is switched on */
function renderBase(component?: string): { status: number | null; output: string } {
  if (component === undefined) return run('kubectl', 'kustomize', KUBERNETES)
  const tree = makeTree()
  cpSync(KUBERNETES, tree.path('base'), { recursive: true })
  appendFileSync(tree.path('base/kustomization.yaml'), `components: [${component}]\n`)
  const rendered = run('kubectl', 'kustomize', tree.path('base'))
  tree.cleanup()
  return rendered
}

/** What the schemas of Kubernetes have against manifests; '' for nothing. */
function validate(text: string): string {
  const { status, stdout, stderr } = spawnSync(VALIDATOR, ['--strict', '-'], { input: text, encoding: 'utf8' })
  return status === 0 ? '' : stdout + stderr
}

/** Unknown fields are refused, as by the API server with strict validation. */
function toStrict(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(toStrict)
  if (typeof schema !== 'object' || schema === null) return schema
  const entries = Object.entries(schema).map(([key, value]) => [key, toStrict(value)])
  const isOpen = !('properties' in schema) || 'x-kubernetes-preserve-unknown-fields' in schema
  return {
    ...Object.fromEntries(entries),
    ...(!isOpen && !('additionalProperties' in schema) && { additionalProperties: false }),
  }
}

/** What the definition of a custom resource has against one, by the schema that its project publishes. */
function validateCustom({ kind, apiVersion, spec }: Manifest): unknown[] {
  const { versions } = parse(readFileSync(join(CACHE, `${kind}.yaml`), 'utf8')).spec
  const version = versions.find(({ name }: { name: string }) => apiVersion.endsWith(`/${name}`))
  const check = new Ajv({ strict: false, validateFormats: false, allErrors: true }).compile(
    toStrict(version.schema.openAPIV3Schema.properties.spec) as object,
  )
  return check(spec) ? [] : check.errors!
}

t.test(
  '[docs.8] the base is valid by the schemas of Kubernetes',
  { skip: withoutTools(VALIDATOR, 'kubectl') },
  async t => {
    const { status, output } = renderBase()
    t.equal(status, 0, output)
    t.equal(validate(output), '')
    t.not(validate(output.replace('containerPort: 8080', 'containerPort: eighty')), '', 'a wrong type is found')
    t.not(validate(output.replace('readOnlyRootFilesystem', 'readOnlyRoot')), '', 'an unknown field is found')
  },
)

t.test(
  '[docs.12] the chart is valid by the schemas of Kubernetes',
  { skip: withoutTools(VALIDATOR, HELM) },
  async t => {
    const more = [
      'imagePullSecrets[0].name=registry',
      'nodeSelector.disk=ssd',
      'podAnnotations.team=a',
      'networkPolicy.enabled=false',
    ]
    for (const values of [[], more]) {
      const { status, output } = renderChart(...values)
      t.equal(status, 0, output)
      t.equal(validate(output), '', values.join(' '))
    }
  },
)

t.test('[docs.12] base and chart deploy the same', { skip: withoutTools('kubectl', HELM) }, async t => {
  const [base, chart] = [toManifests(renderBase().output), toManifests(renderChart().output)]
  t.same([...chart.keys()].sort(), [...base.keys()].sort())
  // Names of labels differ, because a chart has a release; so do the fields that only one of them needs.
  const comparable = (manifests: Map<string, Manifest>): unknown =>
    JSON.parse(
      JSON.stringify(
        Object.fromEntries([...manifests].map(([kind, { metadata, spec, data }]) => [kind, { metadata, spec, data }])),
        (key, value) =>
          ['labels', 'matchLabels', 'selector', 'annotations', 'imagePullPolicy', 'podSelector'].includes(key)
            ? undefined
            : value,
      ),
    )
  t.same(comparable(chart), comparable(base))
  for (const manifests of [base, chart]) {
    const { selector, template } = manifests.get('Deployment')!.spec
    t.match(template.metadata.labels, selector.matchLabels)
    t.same(manifests.get('Service')!.spec.selector, selector.matchLabels)
    t.same(manifests.get('PodDisruptionBudget')!.spec.selector.matchLabels, selector.matchLabels)
    t.same(manifests.get('NetworkPolicy')!.spec.podSelector.matchLabels, selector.matchLabels)
  }
})

t.test(
  '[docs.12] KEDA replaces the autoscaler, in base and chart alike',
  { skip: withoutTools('kubectl', HELM) },
  async t => {
    const [base, chart] = [renderBase('keda'), renderChart('autoscaling.keda.enabled=true')].map(({ output }) =>
      toManifests(output),
    )
    t.same(chart!.get('ScaledObject')!.spec, base!.get('ScaledObject')!.spec)
    t.equal(base!.get('ScaledObject')!.metadata.namespace, 'functions')
    for (const manifests of [base!, chart!]) t.notOk(manifests.has('HorizontalPodAutoscaler'))
    const metrics = readFileSync(join(DEPLOY, '../../spec/observe/metrics.md'), 'utf8')
    for (const { metadata } of chart!.get('ScaledObject')!.spec.triggers)
      for (const [name] of String(metadata.query ?? '').matchAll(/fn_\w+/g)) t.match(metrics, `\`${name}`)
    const two = toManifests(renderChart('autoscaling.keda.enabled=true', 'autoscaling.keda.waitingJobs=0').output)
    t.equal(two.get('ScaledObject')!.spec.triggers.length, 2, 'jobs are ignored')
  },
)

t.test('[docs.12] wrong values of the chart are refused by name', { skip: withoutTools(HELM) }, async t => {
  for (const [value, message] of [
    ['image.tag=bad/tag', '/image/tag'],
    ['settings.FN_STORE_URL=redis://:secret@redis', 'FN_STORE_URL'],
    ['settings.FN_ADMIN_TOKEN=secret', 'FN_ADMIN_TOKEN'],
    ['settings.port=80', 'port'],
    ['settings.FN_SHUTDOWN_TIMEOUT=soon', '/settings/FN_SHUTDOWN_TIMEOUT'],
    ['autoscaling.minReplicas=0', '/autoscaling/minReplicas'],
    ['networkPolicy.namespaces=all', '/networkPolicy/namespaces'],
    ['replicas=3', 'replicas'],
    ['terminationGracePeriodSeconds=35', 'terminationGracePeriodSeconds is 35: it must be greater than 35'],
  ] as const) {
    const { status, output } = renderChart(value)
    t.not(status, 0, value)
    t.match(output, message)
  }
})

t.test('[docs.12] a change of settings is a rollout of the chart', { skip: withoutTools(HELM) }, async t => {
  const checksumOf = (...values: string[]): string =>
    toManifests(renderChart(...values).output).get('Deployment')!.spec.template.metadata.annotations[
      'checksum/settings'
    ]
  t.equal(checksumOf(), checksumOf())
  t.not(checksumOf('settings.FN_RUNTIMES=node'), checksumOf())
})

t.test('[docs.12] values and the Knative service name known settings', async t => {
  const names = [...variablesOf(read('helm', 'fngw', 'values.yaml')), ...variablesOf(read('knative', 'service.yaml'))]
  for (const name of names) t.ok(known.has(name), name)
})

const hasDefinitions = existsSync(join(CACHE, 'Service.yaml')) && existsSync(join(CACHE, 'ScaledObject.yaml'))
t.test(
  '[docs.12] custom resources are valid by the definitions of Knative and KEDA',
  { skip: hasDefinitions ? false : 'their definitions are not installed (npm run test:deploy installs them)' },
  async t => {
    for (const path of [
      ['knative', 'service.yaml'],
      ['kubernetes', 'keda', 'scaled-object.yaml'],
    ]) {
      const manifest = parse(read(...path)) as Manifest
      t.same(validateCustom(manifest), [], path.join('/'))
      t.not(
        validateCustom({ ...manifest, spec: { ...manifest.spec, replicas: 3 } }).length,
        0,
        'an unknown field is found',
      )
    }
  },
)

const programs = findClusterPrograms(join(CACHE, 'bin'))
/** It takes 10 s, also where the programs are installed. */
function withoutCluster(): string | false {
  if (process.env.FNGW_TEST_DEPLOY !== '1') return 'npm run test:deploy runs it'
  if (typeof programs === 'string')
    return `${programs} is not installed (FNGW_TEST_KUBERNETES=1 npm run test:deploy builds it)`
  return withoutTools('kubectl', HELM) || (!hasDefinitions && 'the definitions of Knative and KEDA are not installed')
}

t.test(
  '[docs.20] an API server of Kubernetes accepts the examples',
  { skip: withoutCluster(), timeout: 300_000 },
  async t => {
    const { kubectl, kubeconfig } = await startCluster(t, programs as Exclude<typeof programs, string>)
    const apply = (namespace: string, text: string): string => {
      const { status, output } = kubectl(
        ['apply', '--server-side', '--validate=strict', '--namespace', namespace, '--filename', '-'],
        text,
      )
      if (status !== 0 || output.includes('Warning')) t.fail(output)
      return output
    }
    /** A namespace whose pods follow the strictest of the security standards of Kubernetes. */
    const createNamespace = (name: string): void => {
      const labels = Object.fromEntries(
        ['enforce', 'warn'].map(mode => [`pod-security.kubernetes.io/${mode}`, 'restricted']),
      )
      apply('default', JSON.stringify({ apiVersion: 'v1', kind: 'Namespace', metadata: { name, labels } }))
      apply(name, JSON.stringify({ apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'default' } }))
    }
    for (const kind of ['Service', 'ScaledObject']) apply('default', readFileSync(join(CACHE, `${kind}.yaml`), 'utf8'))
    const crds = ['crd/services.serving.knative.dev', 'crd/scaledobjects.keda.sh']
    t.match(kubectl(['wait', '--for=condition=Established', '--timeout=30s', ...crds]), { status: 0 })

    createNamespace('functions')
    t.match(apply('functions', renderBase().output), /deployment.apps\/functions serverside-applied/)
    t.match(apply('functions', renderBase('keda').output), /scaledobject.keda.sh\/functions serverside-applied/)
    t.match(
      apply('functions', read('knative', 'service.yaml')),
      /service.serving.knative.dev\/functions serverside-applied/,
    )
    createNamespace('charts')
    for (const values of [[], ['autoscaling.keda.enabled=true']])
      t.match(
        apply('charts', renderChart(...values).output.replaceAll('namespace: functions', 'namespace: charts')),
        /deployment.apps\/functions serverside-applied/,
      )
    createNamespace('docs')
    const [, example = ''] = /```yaml\n(.*?)```/s.exec(readFileSync(join(DEPLOY, '../../docs/kubernetes.md'), 'utf8'))!
    t.match(apply('docs', example), /deployment.apps\/functions serverside-applied/)

    for (const namespace of ['functions', 'charts', 'docs']) {
      const { output } = kubectl(['get', 'deployment', 'functions', '--namespace', namespace, '--output', 'json'])
      const { metadata, spec } = JSON.parse(output).spec.template
      const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { ...metadata, name: 'one', namespace }, spec }
      t.match(
        apply(namespace, JSON.stringify(pod)),
        /pod\/one serverside-applied/,
        `${namespace}: its pods are admitted`,
      )
    }
    const bad = renderBase().output.replace('maxReplicas: 10', 'maxReplicas: 1')
    t.match(kubectl(['apply', '--server-side', '--filename', '-'], bad), {
      status: 1,
      output: /must be greater than or equal to/,
    })

    const helm = (...args: string[]) => run(HELM, ...args, '--kubeconfig', kubeconfig, '--namespace', 'charts')
    for (const args of [
      ['install', 'web', CHART],
      ['upgrade', 'web', CHART, '--set', 'autoscaling.keda.enabled=true'],
      ['rollback', 'web', '1'],
      ['uninstall', 'web'],
    ])
      t.match(helm(...args), { status: 0 }, args.join(' '))
  },
)

t.test('[docs.12] the Knative service runs the container of the base', async t => {
  const knative = parse(read('knative', 'service.yaml')).spec.template.spec
  const { spec } = parse(read('kubernetes', 'deployment.yaml')).spec.template
  const [ours, theirs] = [knative.containers[0], spec.containers[0]]
  for (const field of ['volumeMounts', 'resources']) t.same(ours[field], theirs[field], field)
  t.equal(ours.ports[0].containerPort, theirs.ports[0].containerPort)
  for (const probe of ['readinessProbe', 'livenessProbe']) t.equal(ours[probe].httpGet.path, theirs[probe].httpGet.path)
  const { runAsNonRoot, runAsUser, runAsGroup, seccompProfile } = spec.securityContext
  t.same(ours.securityContext, { ...theirs.securityContext, runAsNonRoot, runAsUser, runAsGroup, seccompProfile })
  const env = new Map(ours.env.map(({ name, value }: { name: string; value: string }) => [name, value]))
  for (const { name, value } of theirs.env) t.equal(env.get(name), value)
  t.equal(env.get('FN_CONSOLE_LOGIN_API'), '1', 'requests come from the proxy in the pod, at loopback')
  t.ok(knative.timeoutSeconds > Number(env.get('FN_SHUTDOWN_TIMEOUT')))
})

t.test('[docs.9] the Compose file has a gateway for each upstream of nginx, and known variables', async t => {
  const { services } = parse(read('compose', 'compose.yaml'), { merge: true })
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

t.test('[docs.9] podman-compose reads the Compose file', { skip: withoutTools(COMPOSE) }, async t => {
  const { status, output } = run(COMPOSE, '--file', join(DEPLOY, 'compose/compose.yaml'), 'config')
  t.equal(status, 0, output)
  const { services } = parse(output)
  t.same(Object.keys(services).sort(), ['gateway-1', 'gateway-2', 'gateway-3', 'nginx', 'redis'])
  const { networks: _, ...first } = services['gateway-1']
  for (const name of ['gateway-1', 'gateway-2', 'gateway-3']) {
    const { networks, ...rest } = services[name]
    t.same(rest, first, 'the gateways are the same')
    t.match(networks.default.ipv4_address, /^172\.30\.0\.20\d$/, 'nginx looks up a name only once')
    t.match(services[name], { read_only: true, cap_drop: ['ALL'], secrets: ['admin-token'] })
  }
})

t.test('[docs.9] nginx reads its file', { skip: isInstalled('nginx') ? false : 'nginx is not installed' }, async t => {
  t.equal(findCheck('nginx')!(read('compose', 'nginx.conf').replaceAll(/gateway-\d/g, '127.0.0.1')), null)
})

t.test('[docs.14] the dashboard of Grafana asks for metrics that the gateway has', t => {
  const sources = readdirSync(LIB, { recursive: true }).map(String)
  const text = sources.filter(name => name.endsWith('.ts')).map(name => readFileSync(join(LIB, name), 'utf8'))
  const known = new Set(text.join('').match(/\b(?:fn|http|process|nodejs)_[a-z_]+/g))
  const { panels } = JSON.parse(read('grafana', 'dashboard.json')) as { panels: { targets: { expr: string }[] }[] }
  const asked = panels.flatMap(({ targets }) => targets.flatMap(({ expr }) => expr.match(/\b[a-z]+_[a-z_]{4,}/g) ?? []))
  const names = asked
    .map(name => name.replace(/_bucket$/, ''))
    .filter(name => !/^(histogram_quantile|status_class|__)/.test(name))
  t.ok(names.length > 7)
  for (const name of names) t.ok(known.has(name), name)
  t.end()
})
