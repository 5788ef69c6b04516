<?php
// Written by: php -r 'echo password_hash("...", PASSWORD_BCRYPT);' The passwords are "for-development" and "for-development-2".
return [
    'ada' => '$2y$10$Gt1EIttQTqqbn7emOJRJKeR9KtWYsgWs.VhZjy0Sf9TCCT8VEqlmm',
    'grace' => '$2y$10$nJHRRwy/THjZkOxuznMxVeY0prnseSyHpEuSNyMi.W7matcJxxC1e',
];
