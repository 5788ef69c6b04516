// Loaded before a test file by test/run.mjs: TypeScript as ever, and tap from the one file that tap-bundle.mjs made.
// Threads and processes that a test starts inherit it as a flag of node's; they have no tap.
import 'tsx'
import { register } from 'node:module'
import { pathToFileURL } from 'node:url'
import { tellWhatIsOpen } from './open-handles.mjs'

const bundle = process.env.FNGW_TEST_TAP
if (bundle !== undefined) {
  tellWhatIsOpen()
  register('./tap-hooks.mjs', import.meta.url, { data: pathToFileURL(bundle).href })
}
// Tests compare environments with those of the processes they start.
delete process.env.FNGW_TEST_TAP
