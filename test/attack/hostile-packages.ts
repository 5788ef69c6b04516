/** Packages whose builds attack: each runs one shell script and keeps what that wrote, for the handler to answer with. */

import { execFileSync } from 'node:child_process'
import { existsSync, rmSync } from 'node:fs'
import { manifest } from '../helpers/composer-bed.ts'
import type { TreeEntry } from '../helpers/tree.ts'

/** Of another function, and the folder that it is in. */
export const VICTIM_SECRET = 'planted-in-victim'

/**
 * What a build tries. Lines of its output are judged by their first word.
 * @param root - functions root
 */
export function toScript(root: string): string {
  const attempts = {
    uid: 'id -u',
    groups: 'id -G',
    caps: "sed -n 's/^Cap[PEIA]..:[[:space:]]*0*//p' /proc/self/status | tr -d '\\n'",
    privs: "sed -n 's/^NoNewPrivs:[[:space:]]*//p' /proc/self/status",
    secret: `cat ${root}/victim/fn.env.json`,
    code: `cat ${root}/victim/handler.js`,
    write: `touch ${root}/victim/planted`,
    state: `cat ${root}/.svc/isolation.json`,
    sets: `ls ${root}/.svc/deps`,
    users: `ls ${root}/.svc/users`,
  }
  const lines = Object.entries(attempts).map(([name, command]) => `printf '${name}='; echo $( (${command}) 2>&1 )`)
  return `${lines.join('\n')}\nsetsid sleep 1357 >/dev/null 2>&1 &\nexec env -i setsid sleep 1358 >/dev/null 2>&1 &\n`
}

interface HostilePackage {
  /** Why it cannot be built here. */
  skip: string | false
  files(script: string): Record<string, TreeEntry>
  /** Makes of the written files what the manifest names. @param root - functions root */
  pack?(root: string): void
}

const CONFIG = { timeout_ms: 60_000 }

/** A wheel without any tool: the backend of the package makes it itself. */
const PYTHON_BACKEND = `import os, subprocess, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    seen = subprocess.run(['sh', 'attack.sh'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    name = 'evil-1.0-py3-none-any.whl'
    with zipfile.ZipFile(os.path.join(folder, name), 'w') as wheel:
        wheel.writestr('evil.py', 'SEEN = %r' % seen)
        wheel.writestr('evil-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: evil\\nVersion: 1.0\\n')
        wheel.writestr('evil-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
        wheel.writestr('evil-1.0.dist-info/RECORD', '')
    return name
`

export const HOSTILE_PACKAGES: Readonly<Record<'python' | 'node' | 'php', HostilePackage>> = {
  python: {
    skip: existsSync('/usr/lib/python3/dist-packages/pip') ? false : 'pip of the system is not installed',
    files: script => ({
      'python/evil/pyproject.toml':
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n[project]\nname = "evil"\nversion = "1.0"\n',
      'python/evil/backend.py': PYTHON_BACKEND,
      'python/evil/attack.sh': script,
      'python/requirements.txt': './evil\n',
      'python/fn.config.json': { json: CONFIG },
      'python/handler.py': "import evil\ndef handler(event):\n    return {'status': 200, 'body': evil.SEEN}\n",
    }),
  },
  node: {
    skip: false,
    files: script => ({
      'node/evil/package.json': {
        json: {
          name: 'evil',
          version: '1.0.0',
          main: 'index.js',
          scripts: { postinstall: 'sh attack.sh >seen.txt 2>&1' },
        },
      },
      'node/evil/index.js':
        "module.exports = require('node:fs').readFileSync(require('node:path').join(__dirname, 'seen.txt'), 'utf8')\n",
      'node/evil/attack.sh': script,
      'node/package.json': { json: { type: 'module', dependencies: { evil: 'file:./evil.tgz' } } },
      'node/fn.config.json': { json: { ...CONFIG, allow_scripts: ['evil'] } },
      'node/handler.js': "import evil from 'evil'\nexport const handler = () => ({ status: 200, body: evil })\n",
    }),
    // npm links folders in place of copying them.
    pack(root) {
      execFileSync('tar', ['-czf', `${root}/node/evil.tgz`, '-C', `${root}/node`, 'evil'])
      rmSync(`${root}/node/evil`, { recursive: true })
    },
  },
  php: {
    skip: false,
    files: script => ({
      'php/evil/composer.json': {
        json: {
          name: 'acme/evil',
          version: '1.0.0',
          type: 'composer-plugin',
          require: { 'composer-plugin-api': '^2' },
          extra: { class: 'Acme\\Evil' },
          autoload: { 'psr-4': { 'Acme\\': 'src/' } },
        },
      },
      'php/evil/src/Evil.php': `<?php namespace Acme;
class Evil implements \\Composer\\Plugin\\PluginInterface {
  public function activate(\\Composer\\Composer $composer, \\Composer\\IO\\IOInterface $io): void {
    @mkdir('vendor');
    file_put_contents('vendor/seen.txt', shell_exec('sh ' . escapeshellarg(__DIR__ . '/../attack.sh') . ' 2>&1'));
  }
  public function deactivate(\\Composer\\Composer $composer, \\Composer\\IO\\IOInterface $io): void {}
  public function uninstall(\\Composer\\Composer $composer, \\Composer\\IO\\IOInterface $io): void {}
}
`,
      'php/evil/attack.sh': script,
      'php/composer.json': {
        json: {
          ...(manifest({ 'acme/evil': '1.0.0' }) as { json: object }).json,
          repositories: [{ type: 'path', url: 'evil' }, { 'packagist.org': false }],
        },
      },
      'php/fn.config.json': { json: { ...CONFIG, allow_scripts: ['acme/evil'] } },
      'php/handler.php':
        "<?php function handler($event) { return ['status' => 200, 'body' => file_get_contents(__DIR__ . '/vendor/seen.txt')]; }\n",
    }),
  },
}
