// Loaded before a test file by test/run.mjs: tap from the one file that tap-bundle.mjs made, and TypeScript as compiled-sources.mjs
// compiled it, else by tsx. Processes that a test starts inherit it as a flag of node's, with where the compiled sources are in its query.
import { register } from 'node:module'
import { tellWhatIsOpen } from './open-handles.mjs'

const tap = process.env.FNGW_TEST_TAP
const compiled = new URL(import.meta.url).searchParams.get('compiled')
if (compiled === null) await import('tsx')
else process.setSourceMapsEnabled(true)
if (tap !== undefined) tellWhatIsOpen()
if (tap !== undefined || compiled !== null) register('./tap-hooks.mjs', import.meta.url, { data: { tap, compiled } })
// Tests compare environments with those of the processes they start.
delete process.env.FNGW_TEST_TAP
