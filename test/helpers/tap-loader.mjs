// Loaded before a test file by test/run.mjs: tap from the one file that tap-bundle.mjs made, and TypeScript as compiled-sources.mjs
// compiled it, else by tsx. Threads and processes that a test starts inherit it as a flag of node's; they have tsx alone.
import { register } from 'node:module'
import { tellWhatIsOpen } from './open-handles.mjs'

const { FNGW_TEST_TAP: tap, FNGW_TEST_COMPILED: compiled } = process.env
if (compiled === undefined) await import('tsx')
else process.setSourceMapsEnabled(true)
if (tap !== undefined) {
  tellWhatIsOpen()
  register('./tap-hooks.mjs', import.meta.url, { data: { tap, compiled } })
}
// Tests compare environments with those of the processes they start.
delete process.env.FNGW_TEST_TAP
delete process.env.FNGW_TEST_COMPILED
