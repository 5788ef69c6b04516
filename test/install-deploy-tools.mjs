/**
 * Installs what `npm run test:deploy` checks the examples of deployments with: fixed versions, in a separate folder. It needs Python, Go
 * and several minutes, so the tests of the default suite are skipped where a tool is missing.
 */

import { spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const folder = fileURLToPath(new URL('../node_modules/.cache/deploy-tools', import.meta.url))
const python = ['kubernetes-validate==1.37.0', 'podman-compose==1.6.0']
const helm = 'helm.sh/helm/v3/cmd/helm@v3.18.6'
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

const stamp = join(folder, 'installed.txt')
const wanted = [...python, helm, ...definitions.map(({ module }) => module)].join('\n')
if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) process.exit(0)
mkdirSync(join(folder, 'bin'), { recursive: true })
run(process.env.FN_PYTHON_BIN ?? 'python3', ['-m', 'venv', 'venv'])
run(join(folder, 'venv/bin/pip'), ['install', '--quiet', '--disable-pip-version-check', ...python])
for (const { kind, module, path } of definitions) {
  const { Dir } = JSON.parse(run('go', ['mod', 'download', '-json', module]))
  cpSync(join(Dir, path), join(folder, `${kind}.yaml`))
}
run('go', ['install', '-ldflags=-s -w', helm], { GOBIN: join(folder, 'bin') })
writeFileSync(stamp, wanted)
