/** Function versions of one folder: what all its handlers share. Owner: §2.2. */

import type { PolicyTarget } from '../config/policy-layers.ts'
import type { FunctionVersion } from '../core/catalog.ts'
import type { Warning } from '../core/errors.ts'
import type { Target } from './entry-file.ts'
import type { FunctionMaker, Handler, Identity } from './functions.ts'
import { FolderSchemas } from './schema-names.ts'
import { lacksPackages, manifestsOf } from './signature.ts'
import { toChild } from './tree-path.ts'
import type { Visit } from './visit.ts'

export class FolderMaker {
  readonly visit: Visit
  /** `fn.config.json` of the folder, below the root; it need not exist. */
  readonly configPath: string
  readonly schemas: FolderSchemas
  readonly #maker: FunctionMaker

  constructor(visit: Visit, maker: FunctionMaker) {
    this.visit = visit
    this.#maker = maker
    this.schemas = new FolderSchemas(visit.node)
    this.configPath = toChild(visit.node.path, 'fn.config.json')
  }

  /** A file of the folder or below it as a handler of the folder. */
  handler({ runtime, folder, file }: Target): Handler {
    const { node, layers, helpers, configs, part } = this.visit
    const manifests = manifestsOf(node, runtime)
    if (lacksPackages(node, runtime)) part.manifests.push({ runtime, folder: node.path })
    // An entrypoint further down stands for the folder of its function.
    const schema = this.schemas.of(node, file, folder !== node.path)
    return {
      runtime,
      folder,
      file,
      fnFolder: node.path,
      realFolder: node.realPath,
      layers,
      env: configs.env,
      envProblem: configs.envProblem,
      helpers,
      manifests,
      schema,
    }
  }

  /** What is wrong with the folder's config for this function becomes a warning of the folder. */
  make(handler: Handler, identity: Identity, target: PolicyTarget, isScheduled: boolean): FunctionVersion {
    const { warnings } = this.visit.part
    const found: Warning[] = []
    const fn = this.#maker.make(handler, identity, { ...target, label: this.configPath, warnings: found }, isScheduled)
    // One config may make several functions and is wrong once.
    for (const warning of found) if (!warnings.some(known => known.message === warning.message)) warnings.push(warning)
    return fn
  }
}
