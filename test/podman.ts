/** podman for tests of images, or the reason why it cannot be used here. */

import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

interface Result {
  status: number | null
  stdout: string
  stderr: string
}

export interface Podman {
  run: (...args: string[]) => Result
  /** As `run`, and throws with what podman wrote when it fails. @returns standard output without blanks at its ends */
  get: (...args: string[]) => string
  /** Variables that it has to be run with here. */
  env: Record<string, string>
  /** Build arguments that name the images to start from. */
  bases: string[]
  close: () => void
}

/** Made by test/image-bases.sh where no public registry can be reached. */
const LOCAL_BASES = { NODE_IMAGE: 'localhost/local/node', DEBIAN_IMAGE: 'localhost/local/debian' }

/** Works as root without systemd, where podman's own defaults do not. */
const CONTAINERS_CONF = `[containers]
default_ulimits=["nofile=1024:1024","nproc=1000:1000"]
[engine]
cgroup_manager="cgroupfs"
runtime="runc"
`
const STORAGE_CONF = `[storage]
driver="vfs"
runroot="/run/containers/storage"
graphroot="/var/lib/containers/storage"
`

/** @returns the reason as text where images cannot be built and run */
export function openPodman(env: NodeJS.ProcessEnv = process.env): Podman | string {
  const folder = mkdtempSync(join(tmpdir(), 'fngw-podman-'))
  const close = () => rmSync(folder, { recursive: true, force: true })
  const own: Record<string, string> = {}
  if (env.CONTAINERS_CONF === undefined && process.getuid?.() === 0 && !existsSync('/run/systemd/private')) {
    own.CONTAINERS_CONF = join(folder, 'containers.conf')
    own.CONTAINERS_STORAGE_CONF = join(folder, 'storage.conf')
    writeFileSync(own.CONTAINERS_CONF, CONTAINERS_CONF)
    writeFileSync(own.CONTAINERS_STORAGE_CONF, STORAGE_CONF)
  }
  const run = (...args: string[]): Result =>
    spawnSync('podman', args, { encoding: 'utf8', env: { ...env, ...own }, maxBuffer: 64 * 1024 * 1024 })
  const get = (...args: string[]): string => {
    const { status, stdout, stderr } = run(...args)
    if (status !== 0)
      throw new Error(`podman ${args.slice(0, 2).join(' ')} ended with ${status}: ${stderr.slice(-2000)}`)
    return stdout.trim()
  }
  const problem = toProblem(run('info'))
  if (problem !== null) {
    close()
    return `podman cannot run here: ${problem}`
  }
  const isLocal = Object.values(LOCAL_BASES).every(name => run('image', 'exists', name).status === 0)
  const bases = isLocal
    ? Object.entries(LOCAL_BASES).flatMap(([name, image]) => ['--build-arg', `${name}=${image}`])
    : []
  return { run, get, env: own, bases, close }
}

function toProblem({ status, stderr }: Result): string | null {
  if (status === 0) return null
  if (status === null) return 'it is not installed (apt-get install podman runc buildah)'
  return stderr.trim().split('\n').at(-1) ?? `it ends with ${status}`
}
