/**
 * Installs what `npm run test:deploy` checks the examples of deployments with: fixed versions, in a separate folder. It needs Python, Go
 * and several minutes, so the tests of the default suite are skipped where a tool is missing. With FNGW_TEST_KUBERNETES=1 it also builds an
 * API server of Kubernetes and its etcd, which takes half an hour on two processors.
 */

import { spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const folder = fileURLToPath(new URL('../node_modules/.cache/deploy-tools', import.meta.url))
const python = ['kubernetes-validate==1.37.0', 'podman-compose==1.6.0']
const helm = 'helm.sh/helm/v3/cmd/helm@v3.18.6'
/** Minor and patch version: `k8s.io/kubernetes` is v1 of it, and the modules that it consists of are v0. */
const kubernetes = '34.4'
/** Modules that contain the definition of a resource. */
const definitions = [
  { kind: 'Service', module: 'knative.dev/serving@v0.46.6', path: 'config/core/300-resources/service.yaml' },
  {
    kind: 'ScaledObject',
    module: 'github.com/kedacore/keda/v2@v2.17.2',
    path: 'config/crd/bases/keda.sh_scaledobjects.yaml',
  },
]

function run(command, args, env = {}) {
  process.stdout.write(`${command} ${args.join(' ')}\n`)
  const { status, error, stdout } = spawnSync(command, args, {
    cwd: folder,
    env: { ...process.env, ...env },
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  if (status === 0) return stdout
  process.stderr.write(`${command} failed${error === undefined ? '' : `: ${error.message}`}\n`)
  process.exit(1)
}

/** Does nothing if the stamp in a file says that the same is installed. */
function once(name, wanted, install) {
  const stamp = join(folder, name)
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) return
  install()
  writeFileSync(stamp, wanted)
}

mkdirSync(join(folder, 'bin'), { recursive: true })
once('installed.txt', [...python, helm, ...definitions.map(({ module }) => module)].join('\n'), () => {
  run(process.env.FN_PYTHON_BIN ?? 'python3', ['-m', 'venv', 'venv'])
  run(join(folder, 'venv/bin/pip'), ['install', '--quiet', '--disable-pip-version-check', ...python])
  for (const { kind, module, path } of definitions) {
    const { Dir } = JSON.parse(run('go', ['mod', 'download', '-json', module]))
    cpSync(join(Dir, path), join(folder, `${kind}.yaml`))
  }
  run('go', ['install', '-ldflags=-s -w', helm], { GOBIN: join(folder, 'bin') })
})
if (process.env.FNGW_TEST_KUBERNETES === '1')
  once('kubernetes.txt', kubernetes, () => {
    const { GoMod } = JSON.parse(run('go', ['mod', 'download', '-json', `k8s.io/kubernetes@v1.${kubernetes}`]))
    // It takes its parts from folders, which its module does not contain: they are published as modules too.
    const parts = [...readFileSync(GoMod, 'utf8').matchAll(/^\t(k8s\.io\/\S+) => \.\/staging/gm)].map(
      ([, name]) => name,
    )
    const replaced = parts.map(name => `replace ${name} => ${name} v0.${kubernetes}`)
    writeFileSync(
      join(folder, 'go.mod'),
      ['module tools', 'go 1.24.0', `require k8s.io/kubernetes v1.${kubernetes}`, ...replaced, ''].join('\n'),
    )
    const flags = `-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=v1.${kubernetes}`
    for (const program of ['go.etcd.io/etcd/server/v3', 'k8s.io/kubernetes/cmd/kube-apiserver']) {
      const output = join('bin', program.includes('etcd') ? 'etcd' : 'kube-apiserver')
      run('go', ['build', '-mod=mod', '-trimpath', flags, '-o', output, program], { CGO_ENABLED: '0' })
    }
  })
