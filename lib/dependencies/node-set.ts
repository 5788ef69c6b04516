/**
 * A set of node packages: the key of what it is made from, and how npm fills it. Owner: page dependencies/node.
 *
 *   key   the wishes and the lock file that was there before
 *   pins  the lock file that the install left: it stands for the same set
 */

import type { GatewayError } from '../core/errors.ts'
import { INSTALL_TIMEOUT_SECONDS } from '../core/limits.ts'
import type { FileReader } from '../files/function-file.ts'
import { OwnFolder } from '../files/own-folder.ts'
import type { BuildTools, Toolchain } from './build.ts'
import { BuildKey } from './build-cache.ts'
import { CHANGED_MEANWHILE, readMade, stageFiles } from './file-packages.ts'
import { type InstallUnit, passingError } from './install-step.ts'
import { NODE_LOCK, NodeLock } from './node-lock.ts'
import { NODE_MANIFEST } from './node-manifest.ts'
import { checkLock, isLockOf, NODE_TARGET, type NodeWishes } from './node-wishes.ts'
import { installWithNpm, type NpmAsker, rebuildWithNpm, toNpmError } from './npm.ts'
import { PackageFolder, type SetOutcome } from './package-set.ts'
import type { ToolResult } from './run-tool.ts'
import { labelOf } from './unit-files.ts'

/** Part of the key: a change of how sets are made makes them again. */
export const NODE_RECIPE = 'node 1'
/** File of a set, in its `node_modules`: digest of the lock file that stands for it. */
const PINS = '.fngw-pins'
const NPM_TIMEOUT_MS = INSTALL_TIMEOUT_SECONDS * 1000

interface NodeSetOptions {
  unit: InstallUnit
  wishes: NodeWishes
  toolchain: Toolchain
  allowSources: boolean
  readFile?: FileReader | null
  /** Full path of npm; null when it is not there. */
  findNpm(): string | null
  /** Something that a person should know and that stops nothing. */
  onNote(text: string): void
}

export class NodeSet {
  readonly #options: NodeSetOptions

  constructor(options: NodeSetOptions) {
    this.#options = options
  }

  /** Digest of everything that decides about the files. */
  get key(): string {
    const { unit, wishes } = this.#options
    const { lock, wanted } = wishes
    const placed = new PackageFolder(unit.folder, NODE_TARGET).set
    // The lock file that was written after the install stands for the same packages as the wishes before it.
    if (placed !== null && isLockOf(lock, wanted) && this.#pinsPlaced() === this.#pinsOf(lock)) return placed.key
    const manifest = JSON.stringify(wanted.toStaged({}))
    return this.#toKey(key => key.add('manifest', manifest).add('lock', lock?.digest ?? null))
  }

  #pinsPlaced(): string | null {
    return new OwnFolder(this.#options.unit.folder, NODE_TARGET).read(PINS)?.toString('utf8') ?? null
  }

  #pinsOf(lock: NodeLock): string {
    return this.#toKey(key => key.add('lock', lock.digest))
  }

  #toKey(addPackages: (key: BuildKey) => BuildKey): string {
    const { wishes, toolchain } = this.#options
    return addPackages(new BuildKey().add('recipe', NODE_RECIPE).add('toolchain', toolchain.version))
      .add('scripts', wishes.allowScripts.join(' '))
      .add('unresolved', this.#unresolved.join(' '))
      .add('files', wishes.filesDigest)
      .toString()
  }

  get #unresolved(): string[] {
    return [...this.#options.wishes.unresolved]
  }

  get #asker(): NpmAsker {
    const { unit, wishes } = this.#options
    const imported = wishes.imports.packages.filter(({ name }) => Object.hasOwn(wishes.added, name))
    return { label: unit.label, manifest: labelOf(unit, NODE_MANIFEST), imported }
  }

  /** In the words of this folder, whichever folder's install it was. */
  toError(result: ToolResult): GatewayError {
    return toNpmError(result, this.#asker, NPM_TIMEOUT_MS)
  }

  async fill(draft: OwnFolder, tools: BuildTools): Promise<SetOutcome> {
    const { unit, wishes, allowSources, findNpm } = this.#options
    const { wanted, files, folder, root } = wishes
    const npm = findNpm()
    if (npm === null)
      throw passingError(
        `${unit.label}: npm is not on PATH`,
        'install npm, set FN_NPM_BIN to it, or set FN_AUTO_NODE_DEPS=0',
      )
    const { cwd, digest } = await stageFiles(draft, files, { folder, root, read: this.#options.readFile })
    if (digest !== wishes.filesDigest) throw passingError(`${unit.label}: ${CHANGED_MEANWHILE}`)
    cwd.write(NODE_MANIFEST, `${JSON.stringify(wanted.toStaged({}), null, 2)}\n`)
    const staged = allowSources ? wishes.lock?.text : wishes.lock?.toStaged()
    if (staged !== undefined) cwd.write(NODE_LOCK, staged)
    const hasLock = wishes.lock !== null
    const install = { npm, cwd: cwd.path, draft, hasLock, allowSources, timeoutMs: NPM_TIMEOUT_MS, ...this.#asker }
    await installWithNpm(install, tools)
    // Unchanged by npm, it is the function's own again.
    if (cwd.read(NODE_LOCK)?.toString('utf8') === staged) cwd.write(NODE_LOCK, wishes.lock!.text)
    const lock = new NodeLock(NODE_LOCK, readMade(cwd, NODE_LOCK), NODE_LOCK)
    checkLock(unit, lock, files, allowSources, true)
    await this.#runScripts(install, lock, tools)
    cwd.below(NODE_TARGET).make()
    if (cwd.path !== draft.path)
      for (const name of [NODE_TARGET, NODE_LOCK, NODE_MANIFEST]) cwd.moveTo(name, draft, name)
    draft.below(NODE_TARGET).write(PINS, this.#pinsOf(lock))
    return this.#toOutcome(lock)
  }

  async #runScripts(install: Parameters<typeof rebuildWithNpm>[0], lock: NodeLock, tools: BuildTools): Promise<void> {
    const { unit, wishes, onNote } = this.#options
    const withScripts = new Set(
      lock.packages.filter(({ fields }) => fields.hasInstallScript === true).map(({ name }) => name),
    )
    const allowed = wishes.allowScripts
    await rebuildWithNpm(
      install,
      allowed.filter(name => lock.packages.some(({ name: other }) => other === name)),
      tools,
    )
    const left = [...withScripts].filter(name => !allowed.includes(name))
    if (left.length === 0) return
    onNote(
      `${unit.label}: install scripts of ${left.join(', ')} did not run; ` +
        'name what needs them in allow_scripts of fn.config.json',
    )
  }

  #toOutcome(lock: NodeLock): SetOutcome {
    const { wanted } = this.#options.wishes
    const names = [...Object.keys(wanted.of('dependencies')), ...Object.keys(wanted.of('optionalDependencies'))]
    const resolvedPackages = names.flatMap(name => {
      const version = lock.versionOf(name)
      return version === null ? [] : `${name}@${version}`
    })
    return { resolvedPackages, unresolvedImports: this.#unresolved }
  }
}
