import { chmodSync, linkSync, mkdirSync, symlinkSync } from 'node:fs'
import t from 'tap'
import { createFileReader } from '../../lib/files/function-file.ts'
import { makeTree } from '../helpers/tree.ts'

const LINUX_ONLY = process.platform !== 'linux' && 'FN_ISOLATION=user needs Linux'

t.test(
  '[files/function-file.1, files/function-file.2] plain files are read, links and second names are refused',
  { skip: LINUX_ONLY },
  t => {
    const tree = makeTree({ 'victim/fn.env.json': 'secret', 'mine/plain': 'ok', 'mine/public': 'open', outside: 'no' })
    t.teardown(tree.cleanup)
    const read = createFileReader({ functionsRoot: tree.root, isolation: 'user' })!
    t.equal(read(tree.path('mine/plain')).toString(), 'ok')
    symlinkSync('../victim/fn.env.json', tree.path('mine/fn.env.json'))
    symlinkSync('../victim', tree.path('mine/folder'))
    symlinkSync('plain', tree.path('mine/own'))
    chmodSync(tree.path('victim/fn.env.json'), 0o640)
    linkSync(tree.path('victim/fn.env.json'), tree.path('mine/second'))
    linkSync(tree.path('mine/public'), tree.path('mine/third'))
    mkdirSync(tree.path('mine/made'))
    const refused = { code: 'NOT_OF_FUNCTION' }
    t.throws(() => read(tree.path('mine/fn.env.json')), {
      ...refused,
      message:
        "mine/fn.env.json is a link, or is below one: FN_ISOLATION=user reads only files in the function's own folder",
    })
    t.throws(() => read(tree.path('mine/folder/fn.env.json')), refused, 'below a link')
    t.throws(() => read(tree.path('mine/own')), refused, 'a link to a file of the same folder')
    t.throws(() => read(tree.path('mine/second')), { ...refused, message: /^mine\/second has a second name/ })
    t.equal(read(tree.path('mine/third')).toString(), 'open', 'a second name of what everybody may read')
    t.throws(() => read(tree.path('mine/made')), { ...refused, message: /is not a regular file/ })
    t.throws(() => read(`${tree.root}/../x`), { ...refused, message: /is not in the functions root/ })
    t.throws(() => read(tree.path('mine/none')), { code: 'ENOENT' })
    t.end()
  },
)

t.test('[files/function-file.3] without users of their own functions may have links', t => {
  t.equal(createFileReader({ functionsRoot: '/', isolation: 'process' }), null)
  t.type(createFileReader({ functionsRoot: '/', isolation: 'user' }), 'function')
  t.end()
})
