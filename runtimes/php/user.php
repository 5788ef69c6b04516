<?php
/** The user that a worker runs as, where the gateway keeps functions apart by users. Page: runtime/isolation. */

declare(strict_types=1);

namespace Fngw;

final class User
{
    /** Of Linux: `CAP_SETGID` and `CAP_SETUID`. */
    private const NEEDED_CAPABILITIES = 1 << 6 | 1 << 7;

    public int $uid;
    private string $folder;
    /** @var array<string, int> of each process, as prlimit names them */
    private array $limits;

    /** @param array<string, int> $limits */
    private function __construct(int $uid, string $folder, array $limits)
    {
        $this->uid = $uid;
        $this->folder = $folder;
        $this->limits = $limits;
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
        $limits = (array) ($user['limits'] ?? []);
        foreach ($limits as $name => $value) {
            if (!\is_int($value) || !isset(System::LIMITS[$name])) {
                throw new \RuntimeException("user.limits has no $name of that value");
            }
        }
        if (!self::canChange()) {
            $why = 'the daemon has neither root nor CAP_SETUID and CAP_SETGID';
            throw new \RuntimeException("a worker cannot run as user $uid: $why");
        }
        return new self($uid, $folder, $limits);
    }

    private static function canChange(): bool
    {
        if (\posix_geteuid() === 0) {
            return true;
        }
        $status = (string) @\file_get_contents('/proc/self/status');
        return \preg_match('/^CapEff:\s*([0-9a-f]+)$/m', $status, $found) === 1
            && (\hexdec(\substr($found[1], -8)) & self::NEEDED_CAPABILITIES) === self::NEEDED_CAPABILITIES;
    }

    /**
     * Does something twice, as another user and as the own one: neither alone may signal all processes of a worker. The other
     * user cannot signal or trace this process meanwhile. Root does it once, being allowed everything.
     *
     * @param int|null $uid
     */
    public static function asEach(?int $uid, \Closure $act): void
    {
        $own = \posix_geteuid();
        if ($uid !== null && $own !== 0 && $own !== $uid && \posix_seteuid($uid)) {
            $act();
            \posix_seteuid($own);
        }
        $act();
    }

    /** The user that a process runs as; null when it is gone. */
    public static function of(int $pid): ?int
    {
        $status = (string) @\file_get_contents("/proc/$pid/status");
        return \preg_match('/^Uid:\s*(\d+)/m', $status, $found) === 1 ? (int) $found[1] : null;
    }

    /** Gives up root, or the capabilities to become anybody, for good. What the worker did before is the product's own; what follows may be a function's. */
    public function become(System $system): void
    {
        $id = $this->uid;
        \umask(077);
        // No account has this name, so the group that is given here is the only one that the process gets.
        $isDone = @\posix_initgroups("fngw-$id", $id) && \posix_setgid($id)
            // The kernel takes all capabilities from a process that stops being root, so it becomes root first.
            && (\posix_geteuid() === 0 || \posix_setuid(0)) && \posix_setuid($id);
        if (!$isDone || \posix_getuid() !== $id || \posix_geteuid() !== $id || \posix_getgid() !== $id) {
            \fwrite(\STDERR, "cannot become user $id\n");
            exit(70);
        }
        // As the user: of the daemon's there may be more processes than one function may have.
        $system->limit($this->limits);
        // A file beyond its limit is a warning of the write, and not the worker's end.
        \pcntl_signal(\SIGXFSZ, \SIG_IGN);
        $private = "$this->folder/tmp";
        \putenv("HOME=$private");
        \putenv("TMPDIR=$private");
        foreach (['TMP', 'TEMP', 'USER', 'LOGNAME'] as $name) {
            \putenv($name);
        }
    }
}
