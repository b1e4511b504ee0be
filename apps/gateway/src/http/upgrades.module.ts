import { Module } from '@nestjs/common';
import { Upgrades } from './upgrades';

@Module({ providers: [{ provide: Upgrades, useValue: new Upgrades() }], exports: [Upgrades] })
export class UpgradesModule {}
