import { Module } from '@nestjs/common';
import { ArtifactsController } from './artifacts.controller';
import { BundlesController } from './bundles.controller';

@Module({ controllers: [ArtifactsController, BundlesController] })
export class BundlesModule {}
