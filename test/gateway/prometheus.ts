/** Prometheus' own reading of metrics, by the parser of its Python client (`test/python-packages.sh` installs it). */

import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const PACKAGES = fileURLToPath(new URL('../../node_modules/.cache/fngw-python', import.meta.url))

/** Why texts cannot be read here; null when they can. */
export const noPrometheus: string | null = existsSync(`${PACKAGES}/prometheus_client`)
  ? null
  : 'prometheus-client is not installed: sh test/python-packages.sh'

const READER = `
import json, sys
from prometheus_client.parser import text_string_to_metric_families
print(json.dumps([[f.name, f.type, [[s.name, s.labels, s.value] for s in f.samples]] for f in text_string_to_metric_families(sys.stdin.read())]))
`

type Sample = [name: string, labels: Record<string, string>, value: number]

/** Families by name, with their type and samples. @throws Error with what the parser says */
export function readMetrics(text: string): Map<string, { type: string; samples: Sample[] }> {
  const { status, stdout, stderr } = spawnSync('python3', ['-c', READER], {
    input: text,
    encoding: 'utf8',
    env: { ...process.env, PYTHONPATH: PACKAGES },
    maxBuffer: 256 * 1024 * 1024,
  })
  if (status !== 0) throw new Error(`the parser refuses the text: ${stderr}`)
  const families = JSON.parse(stdout) as [string, string, Sample[]][]
  return new Map(families.map(([name, type, samples]) => [name, { type, samples }]))
}
