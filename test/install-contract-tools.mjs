/**
 * Installs what `npm run test:api-contract` checks the OpenAPI document with: tools of others, of fixed versions, in a folder of their own.
 * They need Python 3.10 or later and a minute; the default suite leaves their tests out until they are there.
 */

import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const folder = fileURLToPath(new URL('../node_modules/.cache/contract-tools', import.meta.url))
const python = ['openapi-spec-validator==0.9.0', 'schemathesis==4.32.5']
const node = ['@redocly/cli@2.77.0', 'openapi-fetch@0.17.0', 'openapi-typescript@7.13.0', 'typescript@5.9.3']

function run(command, args, cwd = folder) {
  process.stdout.write(`${command} ${args.join(' ')}\n`)
  const { status, error } = spawnSync(command, args, { cwd, stdio: 'inherit' })
  if (status !== 0) {
    process.stderr.write(`${command} failed${error === undefined ? '' : `: ${error.message}`}\n`)
    process.exit(1)
  }
}

const stamp = join(folder, 'installed.txt')
const wanted = [...python, ...node].join('\n')
if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) process.exit(0)
mkdirSync(folder, { recursive: true })
writeFileSync(join(folder, 'package.json'), '{ "private": true, "type": "module" }\n')
run('npm', ['install', '--ignore-scripts', '--no-audit', '--no-fund', ...node])
run(process.env.FN_PYTHON_BIN ?? 'python3', ['-m', 'venv', 'venv'])
run(join(folder, 'venv/bin/pip'), ['install', '--quiet', '--disable-pip-version-check', ...python])
writeFileSync(stamp, wanted)
