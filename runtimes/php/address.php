<?php
/** Where a daemon or a worker listens: a path, `unix:/path` or `tcp://host:port`. Page: runtime/daemon. */

declare(strict_types=1);

namespace Fngw;

final class Address
{
    /** Longest path of a unix socket on Linux, bytes. */
    private const MAX_PATH_BYTES = 107;

    /** Full path of a unix socket, '' for tcp. */
    public string $path = '';
    private string $host = '';
    private int $port = 0;

    /** @throws \RuntimeException with a message for the operator */
    public static function parse(string $text): self
    {
        $address = new self();
        if (!\str_starts_with($text, 'tcp://')) {
            $path = (string) \preg_replace('#^unix:(//)?#', '', $text);
            if ($path === '') {
                throw new \RuntimeException("--socket must be a path, unix:<path> or tcp://<host>:<port>, got \"$text\"");
            }
            $address->path = $path[0] === '/' ? $path : \getcwd() . '/' . $path;
            return $address;
        }
        if (\preg_match('#^tcp://(\[[0-9a-fA-F:.]+\]|[^\[\]:/]+):(\d{1,5})$#D', $text, $parts) !== 1) {
            throw new \RuntimeException("--socket must be tcp://<host>:<port>, got \"$text\"");
        }
        if (\preg_match('/^(?:127\.\d+\.\d+\.\d+|\[::1\]|localhost)$/Di', $parts[1]) !== 1) {
            throw new \RuntimeException("$text can be reached from other machines, and nobody has to prove anything here: use fngw daemon");
        }
        $address->host = $parts[1];
        $address->port = (int) $parts[2];
        return $address;
    }

    /**
     * A socket of a worker: beside the daemon's own, or a free port of the host that the gateway reached.
     *
     * @param resource $control
     */
    public function forWorker(int $number, $control): self
    {
        $address = new self();
        if ($this->path !== '') {
            $address->path = (string) \preg_replace('/\.sock$/D', '', $this->path) . "-w$number.sock";
            return $address;
        }
        $local = (string) \stream_socket_get_name($control, false);
        $address->host = \substr($local, 0, (int) \strrpos($local, ':'));
        return $address;
    }

    /**
     * @return resource
     * @throws \RuntimeException with a message for the operator
     */
    public function listen()
    {
        $this->removeStale();
        // Nobody but this user may connect, not even in the instant before a chmod.
        $mask = \umask(0177);
        $uri = $this->path === '' ? "tcp://{$this->host}:{$this->port}" : "unix://{$this->path}";
        $options = \stream_context_create(['socket' => ['backlog' => 128, 'tcp_nodelay' => true]]);
        $socket = @\stream_socket_server($uri, $code, $message, \STREAM_SERVER_BIND | \STREAM_SERVER_LISTEN, $options);
        \umask($mask);
        if ($socket === false) {
            throw new \RuntimeException("cannot listen on $uri: " . $this->explain($message));
        }
        return $socket;
    }

    /** @param resource $listener */
    public function toUri($listener): string
    {
        return $this->path === '' ? 'tcp://' . \stream_socket_get_name($listener, false) : "unix:{$this->path}";
    }

    /** PHP gives no reason when a unix socket cannot be bound. */
    private function explain(string $message): string
    {
        if ($message !== '') {
            return $message;
        }
        if (\strlen($this->path) > self::MAX_PATH_BYTES) {
            return 'the path is longer than ' . self::MAX_PATH_BYTES . ' bytes';
        }
        $folder = \dirname($this->path);
        if (!\is_dir($folder)) {
            return 'the folder does not exist';
        }
        return \is_writable($folder) ? 'the system refused the path' : 'the folder cannot be written to';
    }

    /** A file nobody listens on was left by a daemon that was killed; a live one is not ours to take. */
    private function removeStale(): void
    {
        // The socket of a worker has a name that nobody used before, so mostly there is no file to look at.
        if ($this->path === '' || !@\is_link($this->path) && !\file_exists($this->path)) {
            return;
        }
        $probe = @\stream_socket_client("unix://{$this->path}", $code, $message, 1);
        if ($probe !== false) {
            throw new \RuntimeException("cannot listen on unix:{$this->path}: another daemon serves it");
        }
        if (@\filetype($this->path) === 'socket' || @\filetype($this->path) === 'unknown') {
            @\unlink($this->path);
        }
    }
}
