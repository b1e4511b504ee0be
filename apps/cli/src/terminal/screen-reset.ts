const mouse = [9, 1000, 1001, 1002, 1003, 1005, 1006, 1015, 1016];
const modesOff = [...mouse, 1, 66, 1004, 2004].map((mode) => `\u001b[?${mode}l`).join('');

/** As a terminal is when it is turned on, without losing what scrolled away. */
export const blankScreen = `\u001b[?1049l${modesOff}\u001b[!p\u001b[?7h\u001b[?25h\u001b[r\u001b[0m\u001b[H\u001b[2J`;

/** What a program may have left behind is taken back; the picture stays. */
export const leaveScreen = `\u001b[?1049l${modesOff}\u001b>\u001b[!p\u001b[?7h\u001b[?25h\u001b[0m`;
