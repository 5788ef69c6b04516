/** How to get a runtime's program on this machine: a command only where its package manager is. Owner: §2.15, page runtime/daemon. */

import { existsSync } from 'node:fs'
import type { RuntimeName } from '../core/identity.ts'

interface Source {
  /** Packages by manager. Only those that give a program new enough, under the name that is looked for. */
  packages: Readonly<Partial<Record<Manager, string>>>
  website: string
}

const MANAGERS = {
  'apt-get': { paths: ['/usr/bin/apt-get'], command: 'apt-get install' },
  dnf: { paths: ['/usr/bin/dnf'], command: 'dnf install' },
  pacman: { paths: ['/usr/bin/pacman'], command: 'pacman -S' },
  apk: { paths: ['/sbin/apk'], command: 'apk add' },
  brew: { paths: ['/opt/homebrew/bin/brew', '/usr/local/bin/brew'], command: 'brew install' },
} as const
type Manager = keyof typeof MANAGERS

/** A runtime's program, or a tool beside it. */
type Wanted = RuntimeName | 'composer'

const SOURCES: Readonly<Partial<Record<Wanted, Source>>> = {
  python: {
    packages: { 'apt-get': 'python3', dnf: 'python3', pacman: 'python', apk: 'python3', brew: 'python' },
    website: 'https://www.python.org/downloads/',
  },
  node: { packages: {}, website: 'https://nodejs.org' },
  // Process control is a package of its own with dnf; apk has it under names with a version only.
  php: {
    packages: { 'apt-get': 'php-cli', dnf: 'php-cli php-process', pacman: 'php', brew: 'php' },
    website: 'https://www.php.net/downloads',
  },
  composer: {
    packages: { 'apt-get': 'composer', dnf: 'composer', pacman: 'composer', apk: 'composer', brew: 'composer' },
    website: 'https://getcomposer.org/download/',
  },
  // Stable Debian's is older than what is needed.
  go: { packages: { dnf: 'golang', pacman: 'go', apk: 'go', brew: 'go' }, website: 'https://go.dev/dl/' },
  rust: { packages: {}, website: 'https://rustup.rs' },
}

/** What helps in the images of the Dockerfile, whose user installs nothing. */
const IN_IMAGE: Readonly<Partial<Record<Wanted, string>>> = {
  python: 'use the image target python or full',
  node: 'build the image with another NODE_IMAGE',
  php: 'use the image target php or full',
  composer: 'use the image target full',
  go: 'add it to an image made from the target full',
  rust: 'add it to an image made from the target full',
}

/** True in the images of the Dockerfile. */
export function isInImage(): boolean {
  return process.env.FNGW_IMAGE === '1'
}

/**
 * Words such as `install it (apt-get install php-cli)`.
 * @param isTooOld - true when the program is there: the package manager would give the same one again
 * @param exists - whether a file is there
 */
export function toInstallHint(
  wanted: Wanted,
  isTooOld = false,
  exists: (path: string) => boolean = existsSync,
  inImage = isInImage(),
): string {
  if (inImage) return IN_IMAGE[wanted] ?? ''
  const source = SOURCES[wanted]
  if (source === undefined) return ''
  if (!isTooOld) {
    for (const [name, { paths, command }] of Object.entries(MANAGERS)) {
      const packages = source.packages[name as Manager]
      if (packages !== undefined && paths.some(exists)) return `install it (${command} ${packages})`
    }
  }
  return `install it from ${source.website}`
}
