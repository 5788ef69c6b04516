/** Tools of others that judge the OpenAPI document; `npm run test:api-contract` installs them. */

import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const FOLDER = fileURLToPath(new URL('../../node_modules/.cache/contract-tools', import.meta.url))

/** Why their tests are left out; false when they are installed. */
export const MISSING_TOOLS: string | false = existsSync(join(FOLDER, 'installed.txt'))
  ? false
  : 'the validators are not installed, which takes a minute: npm run test:api-contract'

export interface ToolResult {
  status: number | string
  /** Both streams. */
  output: string
}

/** Runs a tool without a shell, while this process goes on serving. */
export function runTool(command: string, args: readonly string[], cwd = FOLDER): Promise<ToolResult> {
  const env = { ...process.env, REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' }
  return new Promise(resolve => {
    execFile(command, args, { cwd, env, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) =>
      resolve({ status: error === null ? 0 : (error.code ?? 1), output: `${stdout}${stderr}` }),
    )
  })
}

export const nodeTool = (name: string): string => join(FOLDER, 'node_modules/.bin', name)
export const pythonTool = (name: string): string => join(FOLDER, 'venv/bin', name)
/** Where packages of the tools are found by programs that use them. */
export const TOOL_MODULES = join(FOLDER, 'node_modules')
