/** `FN_PY_INFER_BACKEND=pipreqs`: which packages the program of that name finds for a folder. Owner: §2.16, page dependencies/python. */

import type { BuildTools, Toolchain } from './build.ts'
import { type InstallUnit, passingError } from './install-step.ts'
import { toPackageName } from './requirements.ts'

/** The name that pipreqs has for it by itself is an old one, which is not answered everywhere. */
const INDEX = 'https://pypi.org/pypi/'
/** Folders that hold no code of the function. */
const IGNORED = '.deps,.svc,.svc-deps,node_modules,vendor,__pycache__'

/**
 * Names of packages. pipreqs knows by a table which package has which module, and asks the package index about the others.
 * @throws GatewayError when it is not installed
 */
export async function findByPipreqs(unit: InstallUnit, { program }: Toolchain, tools: BuildTools): Promise<string[]> {
  const flags = ['--print', '--mode', 'no-pin', '--ignore', IGNORED, '--encoding', 'utf-8', '--pypi-server', INDEX]
  const env = { PYTHONSAFEPATH: '1', PYTHONWARNINGS: 'ignore' }
  const { code, output } = await tools.run({
    command: program,
    args: ['-m', 'pipreqs.pipreqs', ...flags, unit.folder],
    cwd: '/',
    env,
  })
  if (/No module named '?pipreqs/.test(output)) {
    const hint = 'python3 -m pip install pipreqs, or FN_PY_INFER_BACKEND=native, which needs nothing'
    throw passingError('FN_PY_INFER_BACKEND is pipreqs, which this Python does not have', hint)
  }
  if (code !== 0) throw passingError(`pipreqs: ${output.trim().split('\n').at(-1) ?? `ended with ${code}`}`)
  const names = output.split('\n').filter(line => /^[A-Za-z0-9][A-Za-z0-9._-]*$/.test(line.trim()))
  return [...new Set(names.map(name => toPackageName(name.trim())))]
}
