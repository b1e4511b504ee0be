import { Module } from '@nestjs/common';
import { ExecsController } from './execs.controller';

@Module({ controllers: [ExecsController] })
export class ExecsModule {}
