/** `composer.lock` beside a function: what it pins, and where from. Owner: page dependencies/php. */

import { join } from 'node:path'
import { isObject } from '../core/json.ts'
import { BuildKey } from './build-cache.ts'
import { installError } from './install-step.ts'
import { readSmallFile } from './manifest-text.ts'
import { labelOf } from './unit-files.ts'

export const COMPOSER_LOCK = 'composer.lock'

interface LockedPackage {
  name: string
  version: string
  /** `library`, `composer-plugin`, ... */
  type: string
  fields: Readonly<Record<string, unknown>>
}

/** Where a package of a lock file comes from. */
interface LockedSource {
  name: string
  /** `https` for the hosts that packages of packagist.org are fetched from; `address` for any other. */
  kind: 'path' | 'https' | 'address'
  /** As it is written. */
  url: string
}

export class ComposerLock {
  readonly text: string
  /** Below the functions root, for messages. */
  readonly label: string
  readonly #json: Readonly<Record<string, unknown>>

  /** @throws GatewayError when it is no lock file */
  constructor(text: string, label: string) {
    this.text = text
    this.label = label
    let json: unknown
    try {
      json = JSON.parse(text)
    } catch {
      json = null
    }
    if (isObject(json) && Array.isArray(json.packages)) {
      this.#json = json
      return
    }
    const why = json === null ? 'is not JSON' : 'is no lock file of Composer 2'
    throw installError(`${label}: ${why}`, { file: label }, 'delete it, and it is made again from composer.json')
  }

  /** Those that are installed; what only development needs is not. */
  get packages(): LockedPackage[] {
    return packagesIn(this.#json.packages)
  }

  get sources(): LockedSource[] {
    return [...this.packages, ...packagesIn(this.#json['packages-dev'])].flatMap(({ name, fields }) =>
      [fields.dist, fields.source].flatMap(place =>
        isObject(place) && typeof place.url === 'string' ? { name, ...toPlace(place.type, place.url) } : [],
      ),
    )
  }

  /**
   * The file without packages from paths that the manifest names no more: Composer would install them from there. What it names
   * instead is resolved again.
   */
  withoutStalePaths(isNamed: (url: string) => boolean): ComposerLock {
    const stale = new Set(
      this.sources.flatMap(({ name, kind, url }) => (kind === 'path' && !isNamed(url) ? [name] : [])),
    )
    if (stale.size === 0) return this
    const json = structuredClone(this.#json) as Record<string, unknown>
    for (const field of ['packages', 'packages-dev']) {
      json[field] = packagesIn(json[field]).flatMap(({ name, fields }) => (stale.has(name) ? [] : [fields]))
    }
    return new ComposerLock(`${JSON.stringify(json, null, 4)}\n`, this.label)
  }

  /** Version of a package, as its author writes it; null when it is not pinned. */
  versionOf(name: string): string | null {
    return this.packages.find(one => one.name === name.toLowerCase())?.version ?? null
  }

  /** Digest of all that it says. */
  get digest(): string {
    return new BuildKey().add('lock', JSON.stringify(this.#json)).toString()
  }

  /** The text that Composer gets: packages in paths are copied, whatever the lock file says of links. */
  toStaged(): string {
    const json = structuredClone(this.#json) as Record<string, unknown>
    for (const field of ['packages', 'packages-dev']) {
      for (const { fields } of packagesIn(json[field])) {
        const options = fields['transport-options']
        if (isObject(options)) delete options.symlink
      }
    }
    return `${JSON.stringify(json, null, 4)}\n`
  }
}

/** @returns null when the folder has none */
export function readComposerLock(folder: string, folderLabel: string): ComposerLock | null {
  const label = labelOf({ label: folderLabel }, COMPOSER_LOCK)
  const text = readSmallFile(join(folder, COMPOSER_LOCK), label)
  return text === null ? null : new ComposerLock(text, label)
}

function packagesIn(list: unknown): LockedPackage[] {
  if (!Array.isArray(list)) return []
  return list.flatMap(fields => {
    if (!isObject(fields) || typeof fields.name !== 'string') return []
    const { name, version, type } = fields
    return { name: name.toLowerCase(), version: String(version ?? ''), type: String(type ?? 'library'), fields }
  })
}

/** Where packagist.org says that its packages are. */
const PACKAGE_HOSTS: ReadonlySet<string> = new Set([
  'api.github.com',
  'codeload.github.com',
  'github.com',
  'gitlab.com',
  'bitbucket.org',
  'packagist.org',
  'repo.packagist.org',
])

/** Packages of the common repository name their repository too, by https; nothing else fetches from one. */
function toPlace(type: unknown, url: string): Pick<LockedSource, 'kind' | 'url'> {
  if (/^https:\/\//i.test(url)) return { kind: isPackageHost(url) ? 'https' : 'address', url }
  const isAddress = /^[a-z][a-z0-9+.-]*:/i.test(url) || /^[^/]+@[^/]+:/.test(url)
  const isFile = type === 'path' || type === 'zip' || type === 'tar'
  return { kind: isAddress || !isFile ? 'address' : 'path', url }
}

function isPackageHost(url: string): boolean {
  const { hostname, port, username } = URL.canParse(url) ? new URL(url) : { hostname: '', port: '', username: '' }
  return port === '' && username === '' && PACKAGE_HOSTS.has(hostname)
}
