<?php
/** The user that a worker runs as, where the gateway keeps functions apart by users. Page: runtime/isolation. */

declare(strict_types=1);

namespace Fngw;

final class User
{
    private int $uid;
    private string $folder;

    private function __construct(int $uid, string $folder)
    {
        $this->uid = $uid;
        $this->folder = $folder;
    }

    /**
     * @param array<string, mixed> $start fields of a `start`
     * @return self|null null when it names no user
     * @throws \RuntimeException why it cannot be done
     */
    public static function parse(array $start): ?self
    {
        $user = $start['user'] ?? null;
        if ($user === null) {
            return null;
        }
        $user = (array) $user;
        $uid = $user['uid'] ?? null;
        $folder = $user['folder'] ?? null;
        if (!\is_int($uid) || $uid < 1 || !\is_string($folder)) {
            throw new \RuntimeException('user must have uid, above 0, and folder');
        }
        if (\posix_geteuid() !== 0) {
            throw new \RuntimeException("a worker cannot run as user $uid: the daemon is not root");
        }
        return new self($uid, $folder);
    }

    /** Gives up root for good. What the worker did before is the product's own; what follows may be a function's. */
    public function become(): void
    {
        $id = $this->uid;
        \umask(077);
        // Nobody has this name, so its groups are the one that is given.
        $isDone = @\posix_initgroups("fngw-$id", $id) && \posix_setgid($id) && \posix_setuid($id);
        if (!$isDone || \posix_getuid() !== $id || \posix_geteuid() !== $id || \posix_getgid() !== $id) {
            \fwrite(\STDERR, "cannot become user $id\n");
            exit(70);
        }
        $private = "$this->folder/tmp";
        \putenv("HOME=$private");
        \putenv("TMPDIR=$private");
        foreach (['TMP', 'TEMP', 'USER', 'LOGNAME'] as $name) {
            \putenv($name);
        }
    }
}
