// Loaded before a test file by test/run.mjs. A compiled file (see compiled-sources.mjs) needs no hooks; for others tap comes from the one
// file that tap-bundle.mjs made, and TypeScript as it was compiled, else by tsx. Processes that a test starts inherit it as a flag of
// node's, with where the compiled sources are in its query.
import { register } from 'node:module'
import { tellWhatIsOpen } from './open-handles.mjs'

const tap = process.env.FNGW_TEST_TAP
const compiled = new URL(import.meta.url).searchParams.get('compiled')
if (compiled === null) await import('tsx')
else process.setSourceMapsEnabled(true)
if (tap !== undefined) tellWhatIsOpen()
const isCompiled = compiled !== null && process.argv[1]?.startsWith(`${compiled}/`)
if (!isCompiled && (tap !== undefined || compiled !== null))
  register('./tap-hooks.mjs', import.meta.url, { data: { tap, compiled } })
// Tests compare environments with those of the processes they start.
delete process.env.FNGW_TEST_TAP
