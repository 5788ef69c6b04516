/** `fngw open`: the pages of the running gateway in the browser. Owner: page bin/openapi. */

import type { ApiClient } from './api-client.ts'
import { openUrl } from './open-url.ts'
import type { Output } from './output.ts'
import { CommandError } from './usage-error.ts'

interface OpenSurroundings {
  output: Output
  env: Readonly<Record<string, string | undefined>>
  /** Of the port that everybody may use: the documentation is there. */
  publicApi: ApiClient
  /** Of the control plane's own port where it has one: the console is there. */
  controlApi: ApiClient
  /** Starts the browser. */
  open?: typeof openUrl
}

/**
 * Opens the console where it is on, else the documentation; prints the address either way.
 * @throws CommandError when neither is served, or there is no response
 */
export async function runOpen({ output, env, publicApi, controlApi, open = openUrl }: OpenSurroundings): Promise<void> {
  const pages = [
    [controlApi, '/console'],
    [publicApi, '/docs'],
  ] as const
  for (const [api, path] of pages) {
    const { status } = await api.send('GET', path)
    if (status >= 400) continue
    const url = `${api.target.url}${path}`
    output.result(url)
    if (hasBrowser(env)) open(url, () => output.note('no browser could be opened'))
    return
  }
  throw new CommandError(
    `${publicApi.target.url} serves neither /docs nor /console: FN_DOCS_ENABLED=1 and FN_UI_ENABLED=1 turn them on`,
  )
}

/** Without a display there is no browser to open, as over ssh; `BROWSER` names one. */
function hasBrowser(env: OpenSurroundings['env']): boolean {
  if (process.platform !== 'linux') return true
  return [env.DISPLAY, env.WAYLAND_DISPLAY, env.BROWSER].some(value => value !== undefined && value !== '')
}
