<?php
/**
 * Counts a call in a fixed window of a minute. The counters are in a file, because calls run in several processes.
 * @return int seconds until the window ends; 0 when the call is allowed
 */
function limit_wait(string $key, int $most): int
{
    $folder = __DIR__ . '/../../data';
    if (!is_dir($folder)) {
        // Another process may be faster: then there is nothing to create.
        @mkdir($folder, 0700);
    }
    $now = time();
    $window = intdiv($now, 60);
    $file = fopen("$folder/login-limits.json", 'c+');
    flock($file, LOCK_EX);
    $counts = json_decode(stream_get_contents($file), true);
    // Counters of earlier windows are dropped, so the file stays small.
    if (($counts['window'] ?? 0) !== $window) {
        $counts = ['window' => $window, 'calls' => []];
    }
    $name = hash('sha256', $key);
    $counts['calls'][$name] = ($counts['calls'][$name] ?? 0) + 1;
    rewind($file);
    ftruncate($file, 0);
    fwrite($file, json_encode($counts));
    fclose($file);
    return $counts['calls'][$name] > $most ? 60 - $now % 60 : 0;
}
