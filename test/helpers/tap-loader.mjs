// Loaded before a test file by test/run.mjs: TypeScript as ever, and tap from the one file that tap-bundle.mjs made.
import 'tsx'
import { register } from 'node:module'
import { pathToFileURL } from 'node:url'

register('./tap-hooks.mjs', import.meta.url, { data: pathToFileURL(process.env.FNGW_TEST_TAP).href })
// Tests compare environments with those of the processes they start.
delete process.env.FNGW_TEST_TAP
