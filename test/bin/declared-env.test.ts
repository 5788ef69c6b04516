import t from 'tap'
import { listDeclaredVariables } from '../../bin/declared-env.ts'
import { makeTree } from '../helpers/tree.ts'

t.test('[bin/container.6] every name that a file of the tree declares', async t => {
  const tree = makeTree({
    '.env': 'PROJECT=1\n',
    '.env.local': 'LOCAL=1\nnonsense\n',
    'functions/a/.env': 'export ONE=1\n',
    'functions/a/b/fn.env.json': { json: { TWO: { value: 'x', is_secret: true }, THREE: null } },
    'functions/broken/fn.env.json': '{',
    'functions/node_modules/x/.env': 'PACKAGE=1\n',
    'functions/.svc/.env': 'STATE=1\n',
    'functions/loop': { symlink: '.' },
    'functions/closed/.env': 'CLOSED=1\n',
  })
  t.teardown(tree.cleanup)
  const names = listDeclaredVariables(tree.path('functions'), tree.root)
  for (const name of ['PROJECT', 'LOCAL', 'ONE', 'TWO', 'CLOSED']) t.ok(names.has(name), name)
  for (const name of ['PACKAGE', 'STATE', 'nonsense']) t.notOk(names.has(name), name)
  t.same([...listDeclaredVariables(tree.path('missing'), tree.path('missing'))], [])
})
