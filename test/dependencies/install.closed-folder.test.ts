import { join } from 'node:path'
import t from 'tap'
import { checkWritable, toClosedText } from '../../lib/dependencies/install.ts'
import { isDenied } from '../../lib/dependencies/run-tool.ts'
import { makeTree } from '../helpers/tree.ts'

const ROOT = join('/srv', 'functions')
const at = (...names: string[]) => join(ROOT, ...names)

function toError(code: string, syscall: string, path?: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`${code}: ${syscall}`), { code, syscall, ...(path !== undefined && { path }) })
}

t.test('[dependencies/install.12] the folder, the user and what to type are told', t => {
  const cases = {
    'a look at the folder itself': [toError('EACCES', 'access', at('shop', 'cart')), 'shop/cart'],
    'something new in it': [toError('EACCES', 'mkdir', at('shop', 'cart', '.svc-deps')), 'shop/cart'],
    'a folder of the gateway': [toError('EPERM', 'mkdtemp', at('.svc', 'deps', 'd-XXXXXX')), '.svc/deps'],
    'a path that only this process knows': [toError('EACCES', 'rename', '/proc/self/fd/9/x'), 'shop/cart'],
    'a neighbour of the root': [toError('EACCES', 'open', `${ROOT}2/x`), 'shop/cart'],
    'no path': [toError('EACCES', 'rename'), 'shop/cart'],
  } as const
  for (const [name, [error, shown]] of Object.entries(cases)) {
    t.ok(isDenied(error), name)
    const text = toClosedText(error, { folder: at('shop', 'cart'), functionsRoot: ROOT }, 20_000)
    t.same(
      text,
      {
        message: `${shown} is not writable by user 20000 (the user fngw runs as), and packages are installed beside the function`,
        hint: `in the functions root: chown 20000 ${shown}; or install them as its owner: fngw deps install`,
      },
      name,
    )
  }
  const own = { folder: ROOT, functionsRoot: ROOT }
  t.match(toClosedText(toError('EACCES', 'access', ROOT), own, 7), {
    message: /^the functions root is not writable by/,
    hint: /chown 7 \.;/,
  })
  const odd = { folder: at("it's [id]"), functionsRoot: ROOT }
  t.match(toClosedText(toError('EACCES', 'access', odd.folder), odd, 7).hint, "chown 7 'it'\\''s [id]';")
  t.match(toClosedText(toError('EROFS', 'access', odd.folder), odd, 7), {
    message: "it's [id] is on a read-only file system, and packages are installed beside the function",
    hint: 'mount it writable, or install them before: fngw deps install',
  })
  t.end()
})

t.test('[dependencies/install.12] what failed otherwise is no matter of rights', t => {
  for (const error of [new Error('no code'), toError('ENOENT', 'access', ROOT), toError('ENOSPC', 'write')])
    t.notOk(isDenied(error))
  const tree = makeTree({ 'fn/handler.py': '' })
  t.teardown(tree.cleanup)
  checkWritable(tree.path('fn'))
  t.throws(() => checkWritable(tree.path('gone')), { code: 'ENOENT' })
  t.end()
})
