/** Python wheels made on the spot, and an environment in which pip and uv take packages from their folder alone. */

import { execFileSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'

interface Wheel {
  name: string
  version: string
  /** Files of the package by path; a module `<name>` with VERSION when nothing is given. */
  files?: Readonly<Record<string, string>>
  /** Other packages that it needs. */
  needs?: readonly string[]
}

const MAKE = `
import base64, hashlib, json, sys, zipfile
folder, wheels = sys.argv[1], json.loads(sys.argv[2])
for wheel in wheels:
    name, version = wheel['name'].replace('-', '_'), wheel['version']
    info = '%s-%s.dist-info' % (name, version)
    files = dict(wheel.get('files') or {name + '/__init__.py': 'VERSION = %r\\n' % version})
    needs = ''.join('Requires-Dist: %s\\n' % one for one in wheel.get('needs') or ())
    files[info + '/METADATA'] = 'Metadata-Version: 2.1\\nName: %s\\nVersion: %s\\n%s' % (wheel['name'], version, needs)
    files[info + '/WHEEL'] = 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n'
    rows = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()
        rows.append('%s,sha256=%s,%d\\n' % (path, digest, len(text.encode())))
    files[info + '/RECORD'] = ''.join(rows) + info + '/RECORD,,\\n'
    with zipfile.ZipFile('%s/%s-%s-py3-none-any.whl' % (folder, name, version), 'w') as file:
        for path, text in files.items():
            file.writestr(path, text)
`

/** @param root - a temporary folder. @returns variables with which pip and uv find these wheels and nothing else */
export function makeWheels(root: string, wheels: readonly Wheel[]): Record<string, string> {
  const folder = join(root, 'wheels')
  mkdirSync(folder, { recursive: true })
  execFileSync('python3', ['-c', MAKE, folder, JSON.stringify(wheels)])
  const pip = { PIP_NO_INDEX: '1', PIP_FIND_LINKS: folder, PIP_CONFIG_FILE: '/dev/null', PIP_NO_CACHE_DIR: '1' }
  return { ...pip, UV_NO_INDEX: '1', UV_FIND_LINKS: folder, UV_NO_CACHE: '1' }
}
